"""Sharded tables on several hosts: the bits of replicated ones, and those of the reference.

sharded.py [OPTIMIZER:REDUCTION | forgetting ...], as of exchange.py
"""

from __future__ import annotations

import sys

import numpy as np
from tensorflow import keras

import tfhybrid
from tests.integration.jobs.exchange import STEPS, TOLERANCES, trained
from tests.support.reference import click_model
from tests.support.reference.forgetting_job import ForgettingJob
from tfhybrid import Replicated, Sharded, distributed
from tfhybrid.config.placement import Placement
from tfhybrid.core import native
from tfhybrid.distributed import launcher
from tfhybrid.job import current_job

PLACEMENTS = {
    "replicated": (Replicated(), Replicated()),
    "sharded": (Sharded(), Sharded()),
    "mixed": (Sharded(), Replicated()),
    "whole": (Sharded(by="table"), Sharded(by="table")),
}
ALL_KEYS = np.arange(-5, 3000)
SPAN = 300  # of the keys: so many that a pass takes several pages of memory


def of_all_hosts(tables: dict[str, tfhybrid.store.Table]) -> dict[str, int]:
    """Returns the digest of each table's rows on all hosts, those of replicated ones once."""
    mine = None
    if current_job().is_leader:
        mine = {name: (table.version, table.digest()) for name, table in tables.items()}
    by_leader = [its for its in distributed.allgather_object(mine) if its]
    digests = {}
    for name, table in tables.items():
        assert len({its[name][0] for its in by_leader}) == 1, (name, by_leader)  # versions
        of_hosts = [its[name][1] for its in by_leader]
        if table.is_sharded:
            digests[name] = sum(of_hosts) % 2**64
        else:
            assert len(set(of_hosts)) == 1
            digests[name] = of_hosts[0]
    return digests


# Arguments of tfhybrid.data.announce: a pass as long as it may be, and one that bytes end sooner.
PASSES = (
    {"batches": 3, "on_miss": "raise"},
    {"batches": 7, "fast_tier_bytes": 12_000},
    {"batches": 2, "fetch": "batch"},
)
ON_DEVICE = ((("device", "host"), PASSES[0]), (("device", "device"), PASSES[1]))


def check_owners(table: tfhybrid.store.Table) -> None:
    """What a rank is told of all owners is what each of them has."""
    shards = {shard.host: (shard.rows, shard.bytes) for shard in table.owners()}
    mine = (current_job().engine.host, table.rows, table.stats().bytes)
    hosts = set(distributed.allgather_object(mine)) if table.is_sharded else {mine}
    assert shards == {host: (rows, size) for host, rows, size in hosts}, (shards, hosts)
    assert table.all_rows == sum(rows for rows, _ in shards.values())


def check_unseen(table: tfhybrid.store.Table) -> None:
    """Outside of training, the keys that no host has a row for read zeros on every rank."""
    engine = current_job().engine
    rows = table.lookup(ALL_KEYS)
    held = np.concatenate([block.keys for block in table.blocks()])
    rows[~np.isin(ALL_KEYS, held)] = 0
    found = engine.lookup(table.name, table.dim, ALL_KEYS, outside=True)
    assert np.array_equal(found, rows)
    assert 0 < (rows == 0).all(axis=1).sum() < len(ALL_KEYS)


def train(case: str, placement: str, announced=None, **options):
    """Returns digests, dense weights and rows as looked up; and differences to the reference."""
    optimizer, reduction = case.split(":")
    tfhybrid.init()
    model, keys, differences = trained(
        optimizer, reduction, PLACEMENTS[placement], announced, SPAN, **options
    )
    tables = click_model.collection(model).tables
    if announced is not None:
        met = tfhybrid.pass_stats()
        assert met.hits > 0, met
        assert met.misses == 0, met
    if announced is not None and "fast_tier_bytes" in announced and "update" in options:
        assert 2 < int(model.optimizer.iterations) < STEPS, model.optimizer.iterations
    rows = {name: table.lookup(ALL_KEYS) for name, table in tables.items()}
    for table in tables.values():
        check_owners(table)
        check_unseen(table)
    found = of_all_hosts(tables), click_model.dense_weights(model), rows
    # A rank alone, without the others.
    if tfhybrid.rank() == 1:
        assert np.isfinite(model.predict(keys, verbose=0)).all()
    check_counters(is_any_sharded=placement != "replicated")
    tfhybrid.shutdown()
    keras.backend.clear_session()
    return found, differences


def check_counters(*, is_any_sharded: bool) -> None:
    """Each row that was fetched was served by somebody."""
    distributed.barrier()  # a rank alone has read meanwhile
    everyone = distributed.allgather_object(native.counters())
    totals = {name: sum(its[name] for its in everyone) for name in native.COUNTERS}
    assert totals["fetched_rows"] == totals["served_rows"], totals
    assert totals["fetched_bytes"] == totals["served_bytes"], totals
    assert totals["fetched_rows"] > 0 or not is_any_sharded, totals


def forget(placement: Placement) -> dict[str, list[int]]:
    """Returns the digests of tables that forget."""
    tfhybrid.init()
    job = ForgettingJob(placement=placement, limited=False)
    job.train(1, 3 * STEPS)
    digests = {}
    for cell, table in job.tables.items():
        both = {"rows": table} | ({"waiting": table.waiting} if table.waiting else {})
        digests |= {f"{cell}, {what}": its for what, its in of_all_hosts(both).items()}
    tfhybrid.shutdown()
    keras.backend.clear_session()
    return digests


def assert_equal(first, second, what: object) -> None:
    digests, dense, rows = first
    other_digests, other_dense, other_rows = second
    assert digests == other_digests, (what, digests, other_digests)
    for name, of_table in rows.items():
        np.testing.assert_array_equal(of_table, other_rows[name], err_msg=str(what))
    for mine, other in zip(dense, other_dense, strict=True):
        np.testing.assert_array_equal(mine, other, err_msg=str(what))


def check_updates_per_pass(case: str) -> None:
    """Batches of a pass are trained on the rows as they were fetched, and make one update."""
    summed, _ = train(case, "replicated", backward_passes_per_step=3)
    found, differences = train(case, "sharded", PASSES[0], update="pass")
    assert max(differences.values()) <= TOLERANCES[case.split(":")[0]], differences
    assert_equal(found, summed, (case, "an update per pass"))
    # The passes of the last rank end by their bytes, and it ends those of the others.
    mine = launcher.rank_numbers()
    is_last = mine.rank == mine.size - 1
    announced = {"batches": 7, "fast_tier_bytes": 5_000 if is_last else None}
    _, differences = train(case, "sharded", announced, update="pass")
    assert max(differences.values()) <= TOLERANCES[case.split(":")[0]], differences


def main(cases: list[str]) -> None:
    for case in cases:
        if case == "forgetting":
            wanted, found = forget(Replicated()), forget(Sharded())
            different = [cell for cell, digest in wanted.items() if found[cell] != digest]
            assert not different, different
            continue
        wanted, _ = train(case, "replicated")
        for placement in ("sharded", "mixed", "whole"):
            found, differences = train(case, placement)
            assert max(differences.values()) <= TOLERANCES[case.split(":")[0]], (case, differences)
            assert_equal(found, wanted, (case, placement))
        for announced in PASSES:
            found, _ = train(case, "sharded", announced=announced)
            assert_equal(found, wanted, (case, announced))
        # Embeddings of one table are gathered on the device, or of both.
        places, announced = ON_DEVICE[case == cases[0]]
        found, _ = train(case, "sharded", announced=announced, gather_on=places)
        assert_equal(found, wanted, (case, announced, places))
        if case == cases[0]:
            check_updates_per_pass(case)
        rounded, _ = train(case, "replicated", wire_dtype="bfloat16")
        assert_equal(train(case, "sharded", wire_dtype="bfloat16")[0], rounded, (case, "bfloat16"))
    sys.stdout.write("exact on this rank\n")


if __name__ == "__main__":
    main(sys.argv[1:])
