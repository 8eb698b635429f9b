"""Admission and eviction in the sync unit: those of a plain reference, also after a restart."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tfhybrid
from tests.support.reference import forgetting, training
from tests.support.stream.policy_updates import BY_TIME, CONFIG, KEYS, SPEC, lease_update
from tests.support.stream.supervised_stream import write_config
from tfhybrid.config.row_policy import native_policy
from tfhybrid.errors import ConfigError
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.sync_unit.target_model import TargetModel
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec

Open = Callable[..., TargetModel]


@pytest.fixture
def opened(tmp_path: Path, shm_directory: Path) -> Iterator[Open]:
    models: list[TargetModel] = []

    def opened(config: tfhybrid.TableConfig = CONFIG) -> TargetModel:
        """The model, as a new process finds it."""
        policies = {"item": native_policy(config.admission, config.eviction)}
        while models:
            models.pop().close()
        models.append(TargetModel("ads", tmp_path, shm_directory, policies=policies))
        return models[-1]

    yield opened
    while models:
        models.pop().close()


@pytest.mark.parametrize("saved_after", [None, 11])
@pytest.mark.parametrize("config", [CONFIG, BY_TIME], ids=["steps", "time"])
def test_rows_come_and_go_as_in_the_reference(
    opened: Open, config: tfhybrid.TableConfig, saved_after: int | None
):
    model = opened(config)
    model.open(SPEC, [])
    model.begin("video", QueuePosition(0, 0))
    reference = forgetting.Table("item", config, training.SGD(1.0), 0)
    for number in range(40):
        update = lease_update(number)
        model.apply(update)
        reference.clock = max(reference.clock, update.event_time or 0)
        pairs = zip(update.keys["item"].tolist(), -update.values["item"], strict=True)
        reference.update(dict(pairs))
        if number == saved_after:
            model.save()
        if number % 10 == 5:
            digests = model.digests()
            model = opened(config)
            assert model.digests() == digests
        found = model.read({"item": KEYS})[0]["item"]
        wanted = reference.lookup(KEYS)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5, err_msg=str(number))
    assert reference.waiting
    assert 0 < len(reference.rows) < len(KEYS)


def test_policies_are_the_settings_and_fixed(opened: Open, tmp_path: Path, shm_directory: Path):
    opened().open(SPEC, [])
    other = ModelSpec({"other": TableSpec(3)})
    with pytest.raises(ConfigError, match=r"Policies must name tables.*\['item'\].*\['other'\]"):
        opened().open(other, [])
    settings = StreamSettings.read(write_config(tmp_path, shm_directory))
    rules = {"admission": {"updates": 2, "forget_after": 9}}
    given = dataclasses.replace(settings, policies={"ads": {"item": rules}})
    assert given.native_policies["ads"]["item"] == native_policy(CONFIG.admission, None)
    refused = [
        ({"news": {}}, r"models under policies must be models of .*\['news'\]"),
        ({"ads": {"item": {}}}, "admission, eviction, or both"),
        ({"ads": {"item": {"eviction": {"unseen_time": 5}}}}, "unseen_time needs `event_time"),
    ]
    for policies, message in refused:
        with pytest.raises(ConfigError, match=message):
            assert dataclasses.replace(settings, policies=policies).native_policies
