"""Updates under leases: each once, in the order of the journal, also after a crash and a base."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.support.reference.asynchronous import Replay
from tests.support.stream.model_folder import ModelFolder
from tests.support.stream.model_updates import (
    ADAGRAD,
    DELTAS,
    DENSE,
    FENCE,
    GRADIENTS,
    begun_model,
    lease_update,
)
from tfhybrid.errors import ConfigError, CorruptFileError, LeaseRefusedError, StreamError
from tfhybrid.initializers import Uniform
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.sync_unit.target_model import TargetModel
from tfhybrid.stream.weights import weight_base
from tfhybrid.stream.weights.lease import Lease
from tfhybrid.stream.weights.model_spec import (
    DENSE_TABLE,
    ModelSpec,
    TableSpec,
    dense_rows,
    dense_weights,
)


def _assert_equal(model: TargetModel, replay: Replay) -> None:
    keys = {name: np.arange(-50, 50) for name in replay.spec.tables}
    keys[DENSE_TABLE] = dense_rows(DENSE)[0]
    rows, _ = model.read(keys)
    for name in keys:
        np.testing.assert_array_equal(rows[name], replay.lookup(name, keys[name]), err_msg=name)


@pytest.mark.parametrize("spec", [DELTAS, GRADIENTS], ids=["deltas", "gradients"])
def test_updates_in_any_order_equal_their_replay(folder: ModelFolder, spec: ModelSpec):
    model = begun_model(folder.opened(), spec)
    replay = Replay(spec, DENSE)
    for i, number in enumerate([3, 0, 1, 7, 2]):
        update = lease_update(number, spec)
        assert model.apply(update) == (i + 1, True)
        assert model.apply(update) == (i + 1, False)  # the acknowledgement was lost
        replay.apply(update)
    _assert_equal(model, replay)
    assert model.standing() == {"video": (QueuePosition(4, 0), 1)}


@pytest.mark.parametrize("saved_after", [None, 0, 2, 5], ids=str)
def test_a_new_process_has_the_same_bits(folder: ModelFolder, saved_after: int | None):
    spec = dataclasses.replace(
        DELTAS, tables={**DELTAS.tables, "item": TableSpec(3, Uniform().native, ADAGRAD, slots=1)}
    )
    model = begun_model(folder.opened(), spec)
    for number in range(5):
        if number == saved_after:
            model.save()
        model.apply(lease_update(number, spec))
    if saved_after == 5:
        model.save()
        model.save()  # nothing has changed
    digests, version = model.digests(), model.version
    for _ in range(2):
        model = folder.opened()
        assert (model.digests(), model.version) == (digests, version)
        assert model.apply(lease_update(2, spec)) == (5, False)
    # And it goes on as one that never stopped.
    model.apply(lease_update(5, spec))
    after = model.digests()
    assert folder.opened().digests() == after


def test_saving_prunes_and_updates_may_come_meanwhile(folder: ModelFolder):
    model = begun_model(folder.opened())
    replay = Replay(DELTAS, DENSE)
    for number in range(12):
        update = lease_update(number)
        model.apply(update)
        replay.apply(update)
        if number % 4 == 3:
            model.save()
    assert len(list(folder.folder.glob("base-*"))) == 2
    _assert_equal(model, replay)
    _assert_equal(folder.opened(), replay)


def test_what_is_refused(folder: ModelFolder):
    model = folder.opened()
    with pytest.raises(StreamError, match="Model 'ads' has no weights yet"):
        model.apply(lease_update(0))
    begun_model(model)
    refused = [
        ({"model": "news"}, r"model 'news'"),
        ({"queue": "audio"}, r"queue 'audio'"),
        ({"fence": FENCE - 1}, r"a lease of an earlier provider"),
    ]
    for changes, message in refused:
        with pytest.raises(LeaseRefusedError, match=message):
            model.apply(lease_update(0, **changes))
    model.apply(lease_update(1))
    with pytest.raises(LeaseRefusedError, match="has expired"):
        model.apply(lease_update(0, end=QueuePosition(1, 5)))  # half of it is done
    late = Lease(FENCE, "t", QueuePosition(0, 0), QueuePosition(1, 0), 10)
    assert model.revoke("video", late) is False
    with pytest.raises(LeaseRefusedError, match="has expired"):
        model.apply(lease_update(0))
    # Under another fence the same rows are welcome; then the first holder's are in the weights.
    assert model.apply(lease_update(0, fence=FENCE + 9)) == (2, True)
    assert model.revoke("video", late) is True
    assert model.apply(lease_update(0)) == (2, False)
    model.begin("video", QueuePosition(0, 0))
    with pytest.raises(LeaseRefusedError, match="an earlier provider"):
        model.apply(lease_update(5))


def test_an_update_that_cannot_be_is_not_journaled(folder: ModelFolder):
    model = begun_model(folder.opened())
    bad = lease_update(0)
    bad.values["user"][2, 3] = np.nan
    with pytest.raises(ConfigError, match=r"key -?\d+ of table 'user' has"):
        model.apply(bad)
    short = lease_update(0)
    with pytest.raises(ConfigError, match=r"keys \[n\] and values \[n, dim\]"):
        model.apply(dataclasses.replace(short, values={**short.values, "item": np.zeros((1, 3))}))
    assert model.apply(lease_update(0)) == (1, True)
    assert folder.opened().version == 1


def test_rows_that_are_passed_over_move_the_frontier(folder: ModelFolder):
    model = begun_model(folder.opened())
    for _ in range(2):
        model.skip("video", Lease(FENCE, "t", QueuePosition(0, 0), QueuePosition(1, 0), 0))
    model.apply(lease_update(1))
    assert model.standing() == folder.opened().standing() == {"video": (QueuePosition(2, 0), 0)}


def test_trainers_of_a_model_agree(folder: ModelFolder):
    model = begun_model(folder.opened())
    model.open(DELTAS, [each + 1 for each in DENSE])  # the second trainer that comes
    rows, _ = model.read({DENSE_TABLE: dense_rows(DENSE)[0]})
    for found, first in zip(dense_weights(rows[DENSE_TABLE], DELTAS.dense), DENSE, strict=True):
        np.testing.assert_array_equal(found, first)
    with pytest.raises(ConfigError, match="a trainer with"):
        model.open(dataclasses.replace(DELTAS, seed=4), DENSE)
    with pytest.raises(ConfigError, match="Dense weights must have shapes"):
        folder.opened().open(DELTAS, DENSE[:1])


def test_a_sync_unit_needs_no_tensorflow():
    look = """
import sys
import tfhybrid.stream.provider.provider, tfhybrid.stream.sync_unit.target_model
print(sorted({"tensorflow", "horovod", "keras"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert run.stdout == "[]\n"


def test_a_damaged_base_is_named(folder: ModelFolder):
    model = begun_model(folder.opened())
    model.apply(lease_update(0))
    base = model.save()
    folder.close()
    shutil.rmtree(folder.folder / "journal")  # else it would create the weights again
    for file in base.iterdir():
        content = bytearray(file.read_bytes())
        for flip in (1, 0x80):  # the second makes text that is not UTF-8
            file.write_bytes(content[:-1] + bytes([content[-1] ^ flip]))
            with pytest.raises(CorruptFileError, match="is damaged"):
                TargetModel("ads", folder.folder, folder.memory)
        file.write_bytes(content)
    assert weight_base.newest_first(folder.folder) == [base]
