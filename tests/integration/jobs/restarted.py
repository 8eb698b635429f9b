"""A job that is killed and started again until it has trained all steps; then tells its digests.

    restarted.py DIRECTORY STEPS [OPTIONS]

OPTIONS, in JSON: `seconds` that each step takes at least, `save` every how many steps, `fail` (the
step at which to raise), `die` (the step at which to be killed), `lag` (the step after which all are
killed, the second host before it has applied the update), `sharded` (1: each host has a part of the
tables), `follow` (every how many steps rows may move to other nodes), `passes` (how many batches
each has; for sharded tables), `files` (tables are in files with a cache of so many bytes), `device`
(1: embeddings are gathered on the device, each batch is a pass), `fetch` (the step before which
rank 0 looks up many keys), `announced` (1: as a pass).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import tempfile
import threading
import time

import numpy as np
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import dropout
from tests.support.reference import click_model
from tfhybrid import checkpoint
from tfhybrid.data import Position
from tfhybrid.job import current_job

FETCHED = np.arange(400_000)  # keys; few of them have rows, and all are asked for

directory, steps = sys.argv[1], int(sys.argv[2])
options = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def model_with_everything() -> keras.Model:
    """The click model with what else a rank has of its own: statistics and random generators."""
    placement = tfhybrid.Sharded() if options.get("sharded") else tfhybrid.Replicated()
    storage = None
    if "files" in options:
        storage = tfhybrid.FileTier(tempfile.gettempdir(), cache_bytes=options["files"])
    places = ["device" if options.get("device") else "host"] * 2
    model = click_model.keras_model(placements=[placement] * 2, storage=storage, gather_on=places)
    x = keras.layers.BatchNormalization()(model.layers[-2].output)
    x = dropout(0.2, seed=3)(x)
    x = keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(5))(x)
    return keras.Model(model.inputs, x)


def train_on(keys: dict[str, np.ndarray], labels: np.ndarray) -> None:
    """Trains a step; where embeddings are gathered on the device, as a pass of its own."""
    with contextlib.ExitStack() as stack:
        if options.get("device"):
            items = np.concatenate([keys["clicked"], keys["carted"]], axis=1)
            stack.enter_context(tfhybrid.announce({"user": keys["user"], "item": items}))
        model.train_on_batch(keys, labels)


def fetch() -> None:
    """On rank 0: more rows of the other owners than a slow link brings at once."""
    if tfhybrid.rank() > 0:
        return
    table = checkpoint.dense.tables_of(model)["item"]
    say("fetching")
    with contextlib.ExitStack() as stack:
        if options.get("announced"):
            stack.enter_context(tfhybrid.announce({"item": FETCHED}))
        rows = table.lookup(FETCHED)
    some = slice(None, None, 1000)
    np.testing.assert_array_equal(rows[some], table.lookup(FETCHED[some]))
    say("fetched")


def hold_updates_up() -> None:
    """On the second host's leader: the table is busy for a second or more."""
    if current_job().is_leader and tfhybrid.rank() > 0:
        table = checkpoint.dense.tables_of(model)["item"]
        threading.Thread(target=table.writer.reserve, args=(40_000_000,), daemon=True).start()
        time.sleep(0.1)


def die_apart() -> None:
    """On the first host after the update, on the second one before it."""
    if current_job().hosts[tfhybrid.rank()] == 0:
        say(f"version {checkpoint.dense.tables_of(model)['item'].version}")
    else:
        time.sleep(0.1)  # what the first host needs for the step is on its way
    os.kill(os.getpid(), signal.SIGKILL)


tfhybrid.init("restarted", seed=11, resume="memory")
model = model_with_everything()
model.compile(
    tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01)),
    keras.losses.BinaryCrossentropy(from_logits=True),
)
position = checkpoint.restore(model, directory)
say(f"resumes rank={tfhybrid.rank()} step={position.step}")
batches = click_model.batches(steps, tfhybrid.size())
left = [of_ranks[tfhybrid.rank()] for of_ranks in batches[position.step :]]
if "passes" in options:
    left = tfhybrid.data.announce(
        left, batches=options["passes"], layers=click_model.collection(model), on_miss="raise"
    )
for step, (keys, labels) in enumerate(left, position.step):
    if step == options.get("fail"):
        raise RuntimeError("an error in the script")
    if step == options.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    if step == options.get("fetch"):
        fetch()
    if step == options.get("lag"):
        hold_updates_up()
    started = time.monotonic()
    train_on(keys, labels)
    if "save" in options and (step + 1) % options["save"] == 0:
        checkpoint.save(model, directory, Position(0, step + 1))
        say(f"saved rank={tfhybrid.rank()}")
    if "follow" in options and (step + 1) % options["follow"] == 0:
        follow = tfhybrid.callbacks.FollowNodes()
        follow.set_model(model)
        follow.on_epoch_begin(step)
    if step == options.get("lag"):
        die_apart()
    if step == position.step:
        say(f"trained rank={tfhybrid.rank()}")
    time.sleep(max(0.0, started + options.get("seconds", 0.0) - time.monotonic()))
tables = checkpoint.dense.tables_of(model)
digests = {name: f"{table.digest():016x}" for name, table in tables.items()}
own = hashlib.sha256()
for variable in checkpoint.dense.variables_of(model):
    own.update(np.asarray(variable).tobytes())
say(f"digests rank={tfhybrid.rank()} {json.dumps(digests | {'own': own.hexdigest()[:16]})}")
