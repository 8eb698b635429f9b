"""A table that no host can hold, trained on two hosts of this machine.

    sudo python examples/larger_than_a_host.py

makes two hosts out of network namespaces, gives each of them 64 MB for tables, and trains a table
of 88 MB: first with a copy on each host, which does not fit, then sharded. With `--hosts 4 --memory
29m`, each of four hosts may use a third of what the table takes. On hosts of a cluster:

    horovodrun -np 2 -H host1:1,host2:1 python examples/larger_than_a_host.py sharded
"""

import argparse
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
ROWS, DIM, BATCH = 400_000, 16, 8_000


def train(placement: str) -> None:
    """Meets each of the keys once, on one of the ranks."""
    import tfhybrid
    import keras

    tfhybrid.init()
    placements = {"sharded": tfhybrid.Sharded(), "replicated": tfhybrid.Replicated()}
    table = tfhybrid.TableConfig(
        dim=DIM,
        optimizer=tfhybrid.optimizers.Adagrad(0.1),
        placement=placements.get(placement, placement),
        expected_rows=ROWS,
    )
    inputs = keras.Input((1,), dtype="int64")
    layer = tfhybrid.layers.Embedding(table, name="item")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
    model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
    keys = np.arange(tfhybrid.rank(), ROWS, tfhybrid.size())[:, None]
    broadcast = tfhybrid.callbacks.BroadcastVariables()
    labels = np.ones(len(keys))
    model.fit(keys, labels, batch_size=BATCH // tfhybrid.size(), verbose=0, callbacks=[broadcast])
    if tfhybrid.rank() == 0:
        for shard in layer.table.owners():
            print(f"host {shard.host} has {shard.rows:,} rows, {shard.bytes / 1e6:.0f} MB")
        print(f"trained {layer.table.all_rows:,} rows")


def compare(count: int, memory: str) -> None:
    """Trains on hosts of this machine, one way and then the other.

    Args:
        count: Number of hosts.
        memory: Shared memory of each, as mount has it.
    """
    sys.path.insert(0, str(ROOT))
    from tests.support.hosts import hosts

    with hosts(count) as made:
        for name in made.names:
            made.shrink(name, memory)
        for placement in ("replicated", "sharded"):
            job = made.start(dict.fromkeys(made.names, 1), __file__, placement)
            output, _ = job.communicate()
            wanted = ("Error: ", "rows, ", "trained ")
            lines = [line for line in output.splitlines() if any(each in line for each in wanted)]
            lines = lines or output.splitlines()[-10:]
            print(f"{placement}: exit status {job.returncode}", *lines, sep="\n    ")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("placement", nargs="?", help="trains, instead of making hosts")
    parser.add_argument("--hosts", type=int, default=2, help="to make on this machine")
    parser.add_argument("--memory", default="64m", help="of each host, for tables")
    arguments = parser.parse_args()
    if arguments.placement is not None:
        train(arguments.placement)
    else:
        compare(arguments.hosts, arguments.memory)
