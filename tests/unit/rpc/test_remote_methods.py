"""Remote methods: values travel as they are, and every answer belongs to its call."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import socket
import struct
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import hypothesis.extra.numpy as numbers
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.connected import connected
from tests.unit.rpc.interrupting import InterruptedCallError, interrupted_after
from tfhybrid._remote import AsJson, Int64Array, OfDtype, remote
from tfhybrid.errors import (
    ConfigError,
    LeaseRefusedError,
    OutOfSpaceError,
    StoreError,
    StreamError,
    TfhybridError,
)
from tfhybrid.rpc import listener, messages
from tfhybrid.rpc.calls import Caller, answer_calls, ask_each
from tfhybrid.rpc.encoding import Encoder, decoded, dtype_of, layout_of
from tfhybrid.rpc.handshake import PROTOCOL, Handshake, Purpose
from tfhybrid.rpc.messages import LostError, MessageLink
from tfhybrid.rpc.peer import Peer
from tfhybrid.rpc.remote import Remote
from tfhybrid.rpc.remote_methods import call_on, call_to, client, served, served_of
from tfhybrid.rpc.server import NodeServer

RECORD = np.dtype({"names": ["key", "row"], "formats": ["<i8", ("<f4", (3,))], "offsets": [0, 16]})

FloatArray = Annotated[np.ndarray, OfDtype(np.float32)]


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass(frozen=True)
class Sent:
    points: list[Point]
    arrays: dict[str, np.ndarray]
    records: np.ndarray
    dtype: np.dtype
    colour: Colour
    path: Path
    content: bytes
    choice: Point | None = None


@dataclasses.dataclass(frozen=True)
class Text(AsJson):
    text: str

    def to_json(self) -> str:
        return f'"{self.text}"'

    @classmethod
    def from_json(cls, text: str) -> Text:
        if text != text.strip():
            raise ConfigError(f"A text must have no spaces around it. Received: {text!r}")
        return cls(text[1:-1])


class Spaced(Text):
    def to_json(self) -> str:
        return f" {super().to_json()}"


class Service:
    def __init__(self, name: str = "") -> None:
        self.name = name
        self.calls = 0

    @remote
    def same(self, value: Sent) -> Sent:
        return value

    @remote
    def text(self, value: Text) -> Text:
        return value

    @remote
    def sums(self, keys: Int64Array, values: Mapping[str, FloatArray]) -> dict[str, float]:
        return {name: float(each.sum() + keys.sum()) for name, each in values.items()}

    @remote
    def number(self, value: int = 3, *, slow: float = 0.0) -> int:
        self.calls += 1
        time.sleep(slow)
        return value

    @remote
    def fails(self, kind: str) -> None:
        kinds = {"store": OutOfSpaceError, "lease": LeaseRefusedError, "bug": ZeroDivisionError}
        raise kinds.get(kind, OSError)(f"{kind} failed")

    @remote
    def own_name(self) -> str:
        return self.name

    @remote
    def lies(self) -> int:
        return "seven"  # type: ignore[return-value]

    def hidden(self) -> None: ...


@pytest.fixture
def caller() -> Iterator[Caller]:
    with connected(served(Service())) as caller:
        yield caller


def test_values_come_back_as_they_were(caller: Caller) -> None:
    records = np.zeros(2, RECORD)
    records["key"], records["row"] = [5, -(2**63)], np.arange(6).reshape(2, 3)
    sent = Sent(
        [Point(1, 2), Point(3, 4)],
        {"": np.zeros((0, 3), np.float32), "scalar": np.array(7), "$array": np.arange(3)[::2]},
        records,
        RECORD,
        Colour.RED,
        Path("/a/b"),
        b"\0\xff",
    )
    back = caller.call(Service.same, sent)
    assert (back.points, back.colour, back.path, back.content, back.dtype) == (
        *(sent.points, sent.colour, sent.path, sent.content, sent.dtype),
    )
    assert back.choice is None
    assert back.arrays.keys() == sent.arrays.keys()
    for name, array in sent.arrays.items():
        assert (back.arrays[name].shape, back.arrays[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(back.arrays[name], array)
    np.testing.assert_array_equal(back.records, records)
    assert caller.call(Service.text, Text("a")) == Text("a")
    assert client(Service, caller).number(value=4) == 4


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(values)
def test_plain_values_are_decoded_as_they_were_encoded(value: Any) -> None:
    encoder = Encoder()
    assert decoded(encoder.encoded(value), encoder.arrays) == value


@given(numbers.array_dtypes(subtype_strategy=numbers.scalar_dtypes()) | numbers.scalar_dtypes())
def test_dtypes_come_back(dtype: np.dtype) -> None:
    assume(all(len(field) == 2 for field in (dtype.fields or {}).values()))  # without titles
    assert dtype_of(layout_of(dtype)) == dtype


def test_names_of_records_within_arrays_come_back() -> None:
    item = [("key", "<i8"), ("row", "<f4", (3,)), ("times", [("first", "<i4"), ("last", "<i4")], 2)]
    for dtype in (np.dtype([("items", item, (2, 5)), ("count", "<u4")]), np.dtype((item, (4,)))):
        assert dtype_of(layout_of(dtype)) == dtype
        assert dtype_of(json.loads(json.dumps(layout_of(dtype)))) == dtype


OBJECTS = {"names": ["a"], "formats": [["O", []]], "offsets": [0], "itemsize": 8}


@pytest.mark.parametrize(
    "layout", [["|O", []], OBJECTS, [OBJECTS, [2]], [[], []], [], 3, {"names": []}]
)
def test_other_dtypes_are_refused(layout: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        dtype_of(layout)


@pytest.mark.parametrize("value", [object(), {3: 1}, np.array([None]), {"a": {1, object()}}])
def test_what_cannot_travel_is_named(caller: Caller, value: Any) -> None:
    with pytest.raises(TypeError, match="Received"):
        Encoder().encoded(value)
    with pytest.raises(TypeError, match="Received"):
        caller.call(Service.number, value)


def test_wrong_arguments_are_refused_by_name(caller: Caller) -> None:
    keys, values = np.arange(3), {"a": np.ones(3, np.float32)}
    assert caller.call(Service.sums, keys, values) == {"a": 6.0}
    with pytest.raises(StoreError, match=r"the service: .*Service.sums.*keys: .*int64.*int32"):
        caller.call(Service.sums, keys.astype(np.int32), values)
    with pytest.raises(StoreError, match=r"values\.a: .*float32.*float64"):
        caller.call(Service.sums, keys, {"a": np.ones(3)})
    with pytest.raises(StoreError, match=r"value: Input should be a valid integer.*'x'"):
        caller.call(Service.number, "x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="A text must have no spaces"):
        caller.call(Service.text, Spaced("a"))
    assert caller.call(Service.number) == 3


def test_errors_travel_by_name(caller: Caller) -> None:
    with pytest.raises(OutOfSpaceError, match="the service: store failed"):
        caller.call(Service.fails, "store")
    with pytest.raises(LeaseRefusedError, match="the service: lease failed"):
        caller.call(Service.fails, "lease")
    for kind, text in {"disk": "disk failed", "bug": r"ZeroDivisionError\('bug failed'\)"}.items():
        with pytest.raises(StoreError, match=text) as raised:
            caller.call(Service.fails, kind)
        assert type(raised.value) is StoreError
    with pytest.raises(StoreError, match=r"the service sent an invalid result of Service\.lies"):
        caller.call(Service.lies)
    assert caller.call(Service.number) == 3


def test_only_marked_methods_can_be_called(caller: Caller) -> None:
    with pytest.raises(TypeError, match="marked by @remote"):
        call_to(Service.hidden)
    with pytest.raises(AttributeError, match="no remote method 'hidden'"):
        client(Service, caller).hidden()


def test_an_interrupted_call_closes_its_connection() -> None:
    service = Service()
    with connected(served(service)) as caller:
        assert caller.call(Service.number, 5) == 5
        with pytest.raises(InterruptedCallError), interrupted_after(0.1):
            caller.call(Service.number, 6, slow=2.0)
        assert caller.is_closed
        with pytest.raises(LostError, match="was closed at this end"):
            caller.call(Service.number, 7)


def test_a_caller_that_nobody_closes_ends_its_connection() -> None:
    mine, its = socket.socketpair()
    caller = Caller(mine, "the service")
    with its, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del mine, caller
        assert its.recv(1) == b""
    assert caught == []


def test_an_interrupted_call_to_several_closes_those_that_wait() -> None:
    with connected(served(Service())) as first, connected(served(Service())) as second:
        slow = call_to(Service.number, 1, slow=2.0)
        with pytest.raises(InterruptedCallError), interrupted_after(0.1):
            ask_each([(first, slow), (second, slow)])
        assert first.is_closed
        assert second.is_closed


class Server:
    def __init__(self, service: Service) -> None:
        socket_ = listener.listen("127.0.0.1")
        self.address = f"127.0.0.1:{socket_.getsockname()[1]}"
        models = {name: Service(name) for name in ("ads", "news")}
        calls = served(service)
        of_models = served_of(Service, str, models.__getitem__)
        self.models = NodeServer(socket_, "token", lambda shake, link: answer_calls(
            link, of_models if shake.name == "models" else calls))  # fmt: skip
        self.thread = threading.Thread(target=self.models.run)
        self.thread.start()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(Service())
    yield server
    server.models.stop()
    server.thread.join()


def test_a_reader_in_a_notebook_is_never_given_the_answer_before(server: Server) -> None:
    remote = Remote(server.address, "token", "notebook", "service")
    with pytest.raises(InterruptedCallError), interrupted_after(0.2):
        remote.call(Service.number, 5, slow=2.0)
    assert [remote.call(Service.number, key) for key in (7, 8, 9)] == [7, 8, 9]
    remote.close()


def test_an_error_of_the_other_end_is_not_repeated(server: Server) -> None:
    remote = Remote(server.address, "token", "test", "service", patience=60.0)
    begun = time.monotonic()
    for kind in ("disk", "bug", "store"):
        with pytest.raises(StoreError):
            remote.call(Service.fails, kind)
    assert time.monotonic() - begun < 30.0
    remote.close()


def test_the_end_that_failed_logs_its_error_with_the_name_of_the_caller(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    remote = Remote(server.address, "token", "a test", "service")
    for kind in ("disk", "lease"):
        with pytest.raises(TfhybridError):
            remote.call(Service.fails, kind)
        assert f"The call Service.fails of a test failed: {kind} failed" in caplog.text
    remote.close()


def test_both_ends_of_a_slow_call_say_who_waits_and_for_whom(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(messages, "WAIT_SECONDS", 0.1)
    remote = Remote(server.address, "token", "a test", "service")
    assert remote.call(Service.number, 5, slow=1.0) == 5
    waits = f"for service at {server.address} to answer the call Service.number"
    assert f"Waited 0.1 s {waits}" in caplog.text
    assert f"Waited 0.4 s {waits}" in caplog.text
    assert "The call Service.number of a test has taken" in caplog.text
    remote.close()


def test_an_end_that_reads_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(messages, "WAIT_SECONDS", 0.1)
    mine, its = socket.socketpair()
    values = np.zeros(1 << 20, np.float32)  # more than the kernel keeps for a reader
    with contextlib.closing(Caller(mine, "the service", limit=0.3)) as caller, its:
        with pytest.raises(LostError, match=r"must answer the call Service.sums within 0.3 s"):
            caller.call(Service.sums, np.arange(3), {"a": values})
        assert caller.is_closed
    assert "Waited 0.2 s for the service to answer the call Service.sums" in caplog.text


def test_a_process_that_is_not_there_is_named_while_others_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(messages, "WAIT_SECONDS", 0.2)
    with listener.listen("127.0.0.1") as port:
        address = f"127.0.0.1:{port.getsockname()[1]}"
    remote = Remote(address, "token", "a test", "service", patience=1.0)
    with pytest.raises(StreamError, match="has not answered for 1 s"):
        remote.call(Service.number)
    assert f"s for the service at {address}: Cannot connect to service" in caplog.text


def test_a_target_names_the_object(server: Server) -> None:
    remote = Remote(server.address, "token", "models", "service")
    assert remote.call_on("news", Service.own_name) == "news"
    assert client(Service, remote, on="ads").own_name() == "ads"
    with pytest.raises(StoreError, match="KeyError"):
        remote.ask(call_on("sport", Service.own_name))
    with pytest.raises(StoreError, match="invalid"):
        remote.ask(call_on(3, Service.own_name))
    remote.close()


def test_another_protocol_is_refused_by_name(server: Server) -> None:
    class Other(Handshake):
        def text(self) -> str:
            return super().text().replace(f'"protocol": {PROTOCOL}', '"protocol": 2')

    host, _, port = server.address.partition(":")
    peer = Peer("the service", (host, int(port)), "token")
    refused = pytest.raises(StoreError, match=rf"rank 0 must speak version {PROTOCOL}.*version 2")
    with contextlib.closing(peer.caller(Other(Purpose.CALLS, "rank 0"))) as caller, refused:
        caller.call(Service.number)


def test_a_message_that_is_nested_too_deeply_is_refused() -> None:
    mine, its = socket.socketpair()
    text = np.frombuffer(b"[" * 100_000, np.uint8)
    content = safetensors.numpy.save({"message": text})
    its.sendall(struct.pack("<Q", len(content)) + content)
    with pytest.raises(StoreError, match="data that is not a message: RecursionError"):
        MessageLink(mine, "the service").receive()


def test_an_answer_to_another_call_is_refused() -> None:
    mine, its = socket.socketpair()
    caller, link = Caller(mine, "the service"), MessageLink(its, "a test")
    link.send({"number": 2, "result": 7})
    with pytest.raises(StoreError, match=r"must answer call 1\. Received: the answer to call 2"):
        caller.call(Service.number)
    assert caller.is_closed
    link.close()
