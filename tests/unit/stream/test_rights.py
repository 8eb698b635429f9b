"""Tokens of a stream with fewer rights: what they open, and what they do not."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.support.roles.clusters import until
from tests.support.stream.broker import ROOT
from tests.support.stream.counting_trainer import SPEC
from tests.support.stream.supervised_stream import CLI, COUNTING, Running, write_config
from tfhybrid._remote import remote_methods
from tfhybrid.cli.stream import stream_top
from tfhybrid.cli.stream.stream_top import Processes
from tfhybrid.errors import ConfigError, StoreError
from tfhybrid.rpc.tokens import RIGHTS
from tfhybrid.stream.call_rights import CALL_RIGHTS
from tfhybrid.stream.provider.provider import Provider
from tfhybrid.stream.queues.queue import QueuePosition, Record
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.sync_unit.sync_unit import SyncUnit
from tfhybrid.stream.sync_unit.target_model import TargetModel

OPERATES = {
    *(
        "TargetModel.begin",
        "TargetModel.progress",
        "TargetModel.revoke",
        "TargetModel.save",
        "TargetModel.skip",
    ),
    *("Provider.retry", "SyncUnit.publish"),
}


SECRET, OTHER = "a secret of the test", "another secret of it"


def written(folder: Path, config: Path, right: str) -> Path:
    """Writes the configuration of a host that has the token of one right alone."""
    fields = yaml.safe_load(config.read_text())
    path = folder / f"{right}.yaml"
    path.write_text(yaml.safe_dump({**fields, "token_file": str(folder / right), "rights": {}}))
    return path


@pytest.fixture
def running(tmp_path: Path, shm_directory: Path) -> Iterator[Running]:
    counting = {"count": 1, "command": [*COUNTING, str(tmp_path / "train.yaml")]}
    config = write_config(tmp_path, shm_directory, counting=counting)
    fields = yaml.safe_load(config.read_text())
    fields["rights"] = {right: str(tmp_path / right) for right in RIGHTS[:-1]}
    config.write_text(yaml.safe_dump(fields))
    for right in RIGHTS[:-1]:
        written(tmp_path, config, right)
    running = Running(config)
    yield running
    running.kill()


def refused(right: str, call: str, token: str) -> AbstractContextManager[object]:
    return pytest.raises(
        StoreError,
        match=f"The call {call} needs a token with the right to {right}. "
        f"Received: the token to {token}",
    )


def test_a_token_opens_what_it_has_the_right_to(
    running: Running, tmp_path: Path, monkeypatch
) -> None:
    until((tmp_path / "train").exists)
    file = tmp_path / "rows.jsonl"
    file.write_text('{"item": 0, "medium": "video"}\n{"item": 1, "medium": "video"}\n')
    command = [*CLI, "feed", str(tmp_path / "train.yaml"), str(file)]
    subprocess.run(command, cwd=ROOT, check=True)
    until(lambda: bool(running.counts(2).sum() == 2))  # the trainer has the token to train

    reads, trains = (StreamSettings.read(tmp_path / f"{right}.yaml") for right in RIGHTS[:-1])
    monkeypatch.setattr(stream_top, "_PATIENCE_SECONDS", 30.0)  # the machine may be busy
    assert Processes(reads, []).answers().silent == []
    model = reads.remote_model("ads", "a frontend")
    np.testing.assert_array_equal(model.read({"item": np.arange(2)})[0]["item"], np.ones((2, 1)))
    with refused("train", "TargetModel.open", "read"):
        model.open(SPEC, [])
    with refused("train", "Provider.put", "read"):
        reads.remote_provider("a frontend").put("web", 0, Record(b"{}"))
    with refused("operate", "SyncUnit.publish", "train"):
        trains.remote_unit("a trainer").publish("ads", anyway=True)
    with refused("operate", "TargetModel.begin", "train"):
        trains.remote_model("ads", "a trainer").begin("video", QueuePosition(0, 0))
    running.settings.remote_model("ads", "an operator").save()


def test_every_call_has_a_right() -> None:
    calls = {name for of in (Provider, SyncUnit, TargetModel) for name in remote_methods(of)}
    assert calls == {*CALL_RIGHTS, *OPERATES}
    assert {*CALL_RIGHTS.values()} == {*RIGHTS[:-1]}


def test_two_rights_need_two_tokens(tmp_path: Path, shm_directory: Path) -> None:
    settings = StreamSettings.read(write_config(tmp_path, shm_directory))
    for name, text in (("token", SECRET), ("train", SECRET), ("read", OTHER)):
        (tmp_path / name).write_text(text)
    one = dataclasses.replace(settings, rights={"read": str(tmp_path / "read")})
    assert one.tokens == {f"stream1.{SECRET}": "operate", f"stream1.{OTHER}": "read"}
    both = dataclasses.replace(settings, rights={"train": str(tmp_path / "train")})
    with pytest.raises(ConfigError, match="a token of its own"):
        both.tokens  # noqa: B018
    config = write_config(tmp_path, shm_directory)
    config.write_text(config.read_text() + "rights: {admin: token}\n")
    with pytest.raises(ConfigError, match=r"rights\.admin: the fields must be from"):
        StreamSettings.read(config)
