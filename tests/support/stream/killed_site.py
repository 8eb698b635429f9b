"""The processes of a stream, killed at random while rows come."""

from __future__ import annotations

import functools
import json
import logging
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.support.free_ports import two_free_ports
from tests.support.stream.broker import ROOT, Broker
from tests.support.stream.counting_trainer import SPEC, trains_line
from tests.support.stream.recovery_times import RecoveryTimes
from tests.support.stream.stream_file import write_stream
from tfhybrid.errors import StreamError
from tfhybrid.rpc.remote import Remote
from tfhybrid.rpc.remote_methods import call_on, call_to
from tfhybrid.serving import Reader
from tfhybrid.serving.read_only_node import ReadOnlyNode
from tfhybrid.stream.audit import audit
from tfhybrid.stream.provider.provider import Provider
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.sync_unit.target_model import TargetModel

LOGGER = logging.getLogger(__name__)

ITEMS_A_KILL = 300
_SEED = 7


class Site:
    """The processes of a stream, by role; a role that was killed starts again."""

    def __init__(self, folder: Path, config: Path) -> None:
        self._folder = folder
        self.config = config
        command = [sys.executable, "-m", "tfhybrid.cli", "stream"]
        trainer = [sys.executable, "-m", "tests.support.stream.counting_trainer"]
        self._reader = f"127.0.0.1:{two_free_ports()}"
        serve = ["serve", config, "ads", "--listen", self._reader, "--interval", "0.05"]
        self._commands = {
            "sync": [*command, "sync", config],
            "provider": [*command, "provide", config],
            "trainer 1": [*trainer, config],
            "trainer 2": [*trainer, config],
            "reader": [*command, *serve],
        }
        self._processes: dict[str, subprocess.Popen] = {}
        for role in self._commands:
            self.start(role)

    @property
    def roles(self) -> list[str]:
        return list(self._commands)

    def start(self, role: str) -> None:
        with (self._folder / f"{role}.log").open("ab") as log:
            self._processes[role] = subprocess.Popen(
                self._commands[role], stdout=log, stderr=log, cwd=ROOT
            )

    def kill(self, role: str) -> None:
        self._processes[role].kill()
        self._processes[role].wait()

    def works(self, role: str) -> None:
        """Waits until a role that was killed, or the broker, works again.

        A trainer has trained rows, sync unit, provider and reader have answered, the broker has
        told the provider how many records there are. Raises StreamError if it does not, in a while.
        """
        if role.startswith("trainer"):
            said = trains_line(self._processes[role].pid)
            if said not in (self._folder / f"{role}.log").read_text():
                raise StreamError(f"{role} has trained nothing yet")
            return
        settings = StreamSettings.read(self.config)
        calls = {
            "sync": (settings.sync, call_on("ads", TargetModel.standing)),
            "reader": (self._reader, call_to(ReadOnlyNode.spec)),
        }
        address, call = calls.get(role, (settings.provider, call_to(Provider.lag, "ads")))
        remote = Remote(address, settings.token, "test", role, patience=0.0)
        try:
            remote.ask(call)
        finally:
            remote.close()

    def check(self) -> None:
        for role, process in self._processes.items():
            if process.poll() is not None:
                pytest.fail(f"{role} ended: {(self._folder / f'{role}.log').read_text()[-2000:]}")

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def start(folder: Path, memory: Path, queues: dict[str, str]) -> Site:
    """Starts a stream whose rows are those of `queues`, or of directories."""
    (folder / "token").write_text("a secret of the test")
    (folder / "stream").mkdir()
    config = write_stream(
        *(folder, memory, {"item": "int64", "medium": "string"}),
        media=("video", "news"),
        queues=queues,
        lease={"seconds": 1.0, "first_rows": 16},
        expires_seconds=1.5,
        save_seconds=0.5,  # kills meet bases that are being written
        publish={"ads": {"folder": str(folder / "published"), "seconds": 0.2}},
    )
    return Site(folder, config)


def check_kills(
    kills: int, broker: Broker | None, folder: Path, memory: Path
) -> dict[str, dict[str, float]]:
    """Kills a process, or the broker, so many times; each row is in the weights once.

    Args:
        kills: How many.
        broker: Whose queues are used; those of directories without one.
        folder: Of all that the stream keeps.
        memory: Of its stores.

    Returns:
        Of each role, how often it was killed and how long it took until it worked again.
    """
    dice = random.Random(_SEED)
    queues = (
        {name: f"kafka://{broker.servers}/{name}-{kills}" for name in ("video", "news")}
        if broker
        else {}
    )
    site = start(folder, memory, queues)
    reader = Reader(folder / "published", name="test", memory=memory)
    reader.follow(0.05)
    roles = [*site.roles, "broker"] if broker else site.roles
    times = RecoveryTimes({role: functools.partial(site.works, role) for role in roles})
    try:
        items = _kill(site, kills, broker, folder, dice, reader, times)
        _assert_trained(site, items)
        _assert_published(reader, items)
        return times.summary()
    finally:
        site.end()
        reader.close()


def _kill(
    site: Site,
    kills: int,
    broker: Broker | None,
    folder: Path,
    dice: random.Random,
    reader: Reader,
    times: RecoveryTimes,
) -> int:
    """Feeds rows and kills; returns how many rows there are."""
    items = 0
    for number in range(kills):
        new = range(items, items + ITEMS_A_KILL)
        items += ITEMS_A_KILL
        file = folder / f"{new.start}.jsonl"
        rows = [{"item": item, "medium": dice.choice(["video", "news"])} for item in new]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        feed = [sys.executable, "-m", "tfhybrid.cli", "stream", "feed", "--rows", "50"]
        feeding = subprocess.Popen([*feed, site.config, file], cwd=ROOT, stdout=subprocess.DEVNULL)
        time.sleep(dice.random())
        victim = dice.choice([*site.roles, "broker"] if broker else site.roles)
        LOGGER.info("kill %d of %d: %s", number + 1, kills, victim)
        if victim == "broker":
            broker.kill()
            times.begin(victim)
            broker.start()
        else:
            site.kill(victim)
            site.start(victim)
            times.begin(victim)
        if dice.random() < 0.3:  # the producer dies too, and sends everything again
            feeding.kill()
            feeding.wait()
            feeding = subprocess.Popen(
                [*feed, site.config, file], cwd=ROOT, stdout=subprocess.DEVNULL
            )
        assert feeding.wait() == 0
        site.check()
        if reader.publication is not None:  # never a row twice, whatever publisher wrote it
            assert reader.read({"item": np.arange(items)}).rows["item"].max() <= 1
    return items


def _assert_trained(site: Site, items: int) -> None:
    settings = StreamSettings.read(site.config)
    model = settings.remote_model("ads", "test")
    model.open(SPEC, [])
    counts = np.zeros(items)
    while counts.sum() < items:
        site.check()
        assert [each.missing for each in audit(settings)] == [0, 0]
        time.sleep(0.2)
        counts = model.read({"item": np.arange(items)})[0]["item"][:, 0]
    time.sleep(2.0)  # whatever expires meanwhile must not come twice
    counts = model.read({"item": np.arange(items)})[0]["item"][:, 0]
    np.testing.assert_array_equal(counts, np.ones(items))
    accounts = audit(settings)
    assert [each.missing for each in accounts] == [0, 0]
    assert sum(each.put for each in accounts) == items
    assert sum(each.trained for each in accounts) == items


def _assert_published(reader: Reader, items: int) -> None:
    """What is published at last has each row once."""
    until = time.monotonic() + 60
    counts = np.zeros(items)
    while counts.sum() < items and time.monotonic() < until:
        time.sleep(0.1)
        counts = reader.read({"item": np.arange(items)}).rows["item"][:, 0]
    np.testing.assert_array_equal(counts, np.ones(items))
