"""Connections of a stream are cut at each message: each row is in the weights once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.stream.counting_trainer import SPEC, update_of
from tests.support.stream.online_site import Site
from tfhybrid.rpc.messages import MessageLink
from tfhybrid.stream.audit import audit
from tfhybrid.stream.provider.work import EncodedWork, Request
from tfhybrid.stream.queues.queue import Record

ROWS = 2  # of a record
MOMENTS = ("before", "within", "behind")


class Cutter:
    """Counts the messages of this process, of all its ends, and cuts the connection at one.

    Attributes:
        sent: Number of messages since `cut`.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._send, self._moved = MessageLink.send, MessageLink._moved
        self._lock = threading.Lock()
        self._number, self._moment, self._halved = 0, "", None
        self.sent = 0
        cutter = self
        patch.setattr(MessageLink, "send", lambda link, *rest: cutter._sent(link, *rest))
        patch.setattr(MessageLink, "_moved", lambda link, *rest: cutter._part(link, *rest))

    def cut(self, number: int, moment: str) -> None:
        """Cuts before, within or behind the message of a number from now on; 0 is none."""
        self.sent, self._number, self._moment, self._halved = 0, number, moment, None

    def _sent(self, link: MessageLink, *rest: Any) -> None:
        with self._lock:
            self.sent += 1
            cuts = self.sent == self._number
        if cuts and self._moment == "before":
            link.close()
        if cuts and self._moment == "within":
            self._halved = link
        self._send(link, *rest)
        if cuts and self._moment == "behind":
            link.close()

    def _part(self, link: MessageLink, move: Callable, view: memoryview, *rest: Any) -> int:
        if self._halved is not link or len(view) <= 8:  # of its length
            return self._moved(link, move, view, *rest)
        self._halved = None
        moved = self._moved(link, move, view[: len(view) // 2], *rest)
        link.close()
        return moved


class Stream:
    """A stream with a producer and a trainer on this thread, through sockets."""

    def __init__(self, folder: Path, memory: Path) -> None:
        self.site = Site(folder, memory, lease={"rows": ROWS})
        self.provider = self.site.settings.remote_provider("trainer")
        self.model = self.site.settings.remote_model("ads", "trainer")
        self.model.open(SPEC, [])
        self.records = self._requests = 0

    def turn(self) -> None:
        """Calls all that a producer and a trainer call, and all that the provider calls then."""
        rows = [
            {"item": ROWS * self.records + row, "history": [], "medium": "video", "label": 1.0}
            for row in range(ROWS)
        ]
        self.records += 1
        self.provider.put("producer", self.records, Record(json.dumps(rows).encode()))
        self.provider.last_record("producer")
        self._lease()
        self.provider.leave("trainer", "ads")
        # A record without good rows, of another producer, which the provider skips.
        self.site.provider._queues["video"]._writer.queue.append([Record(b"nonsense")])
        work = self._lease().granted(lambda *_: pytest.fail("The rows come with the lease"))
        self.provider.renew("trainer", "ads", work.queue, work.lease.fence)
        self.model.read({"item": np.arange(3)})
        self.model.apply_record(update_of(work, "ads", "trainer").to_record())
        self.provider.finish("ads", work.queue, work.lease.fence)
        assert self.provider.lease_encoded(self._request()) is None
        assert not self.provider.has_rows(self._request())

    def restart(self) -> None:
        """Replaces the provider by a new one, which calls the sync unit; and saves the model."""
        self.site.restart_provider()
        self.model.save()

    def check(self) -> None:
        counts, _ = self.model.read({"item": np.arange(ROWS * self.records)})
        np.testing.assert_array_equal(counts["item"], 1.0)
        (account,) = audit(self.site.settings)
        assert (account.missing, account.waiting) == (0, 0)
        assert account.trained == ROWS * self.records

    def _lease(self) -> EncodedWork:
        work = self.provider.lease_encoded(self._request(), 1.0)
        assert work is not None
        return work

    def _request(self) -> Request:
        self._requests += 1
        return Request("trainer", self._requests, "ads")


@pytest.fixture
def stream(tmp_path: Path, shm_directory: Path) -> Iterator[Stream]:
    stream = Stream(tmp_path, shm_directory)
    yield stream
    stream.site.close()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_cut_at_any_message_loses_and_repeats_nothing(
    stream: Stream, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cutter = Cutter(monkeypatch)
    for work in (stream.turn, stream.restart):
        number, messages = 1, 1
        while number <= messages:
            cutter.cut(number, moment)
            work()
            messages, number = cutter.sent, number + 1
            cutter.cut(0, "")
            stream.turn()
            stream.check()
        assert messages >= 4
