"""Keys that the sync unit evicts by event time: readers lose them with the next publication."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.reference import forgetting, training
from tests.support.stream.policy_updates import BY_TIME, KEYS, SPEC, lease_update
from tfhybrid.checkpoint import storage
from tfhybrid.config.row_policy import native_policy
from tfhybrid.serving import Reader
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.sync_unit.publisher import PublishRules
from tfhybrid.stream.sync_unit.sync_unit import SyncUnit


@pytest.mark.parametrize("killed_after", [None, 13])
def test_what_is_evicted_by_event_time_is_gone_from_readers(
    tmp_path: Path, shm_directory: Path, killed_after: int | None
):
    publications = storage.location(tmp_path / "publications")
    policies = {"ads": {"item": native_policy(BY_TIME.admission, BY_TIME.eviction)}}

    def started() -> SyncUnit:
        rules = {"ads": PublishRules(str(publications), seconds=1e6, deltas=100)}
        folder = tmp_path / "models"
        return SyncUnit(["ads"], folder, shm_directory, policies=policies, publish=rules)

    unit = started()
    unit.models["ads"].open(SPEC, [])
    unit.models["ads"].begin("video", QueuePosition(0, 0))
    reference = forgetting.Table("item", BY_TIME, training.SGD(1.0), 0)
    reader = Reader(publications, name="ads", memory=shm_directory)
    removed = 0
    for number in range(30):
        update = lease_update(number)
        unit.models["ads"].apply(update)
        reference.clock = max(reference.clock, update.event_time or 0)
        pairs = zip(update.keys["item"].tolist(), -update.values["item"], strict=True)
        reference.update(dict(pairs))
        if number == killed_after:  # before it could publish
            for publisher in unit.publishers.values():
                publisher.publish = lambda: None  # type: ignore[method-assign]
            unit.close()
            unit = started()
        if number % 2:
            made = unit.publishers["ads"].publish()
            removed += 0 if made.is_base else made.removed
            reader.refresh()
            found = reader.read({"item": KEYS}).rows["item"]
            wanted = reference.lookup(KEYS)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5, err_msg=str(number))
    assert removed > 5
    reader.close()
    late = Reader(publications, name="ads", memory=shm_directory)
    late.refresh()
    np.testing.assert_array_equal(late.read({"item": KEYS}).rows["item"], found)
    late.close()
    unit.close()
