"""The first signal is a wish, the second one ends; children and own handlers are left alone."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest
import tensorflow as tf

from tfhybrid.callbacks.checkpoint import Checkpoint
from tfhybrid.callbacks.stop_signals import StopSignals
from tfhybrid.optimizers.fit_state import StopRequests

pytestmark = pytest.mark.usefixtures("job", "interruptible")


@pytest.fixture
def interruptible():
    """As in a shell: what runs in the background ignores SIGINT, and that is left alone."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def signals(interruptible):
    """Those of an optimizer's step that wants nothing yet."""
    made = StopSignals(StopRequests())
    made.take()
    yield made
    made.give_back()


def test_the_first_is_a_wish_and_the_second_ends(signals) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    assert float(signals._requests.own) == 1.0
    assert signals.after_step() is None  # no step has told the others yet
    assert signals.at_end() == signal.SIGINT
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_while_a_graph_is_traced_is_no_part_of_the_graph(signals) -> None:
    @tf.function
    def step() -> tf.Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        return tf.constant(1)

    step()
    assert float(signals._requests.own) == 1.0
    signals._requests.withdraw()
    step()
    assert float(signals._requests.own) == 0.0


def test_a_child_ends_as_if_there_were_no_handler(signals) -> None:
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert float(signals._requests.own) == 0.0


def test_a_handler_of_the_program_stays() -> None:
    received = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        signals = StopSignals(StopRequests())
        signals.take()
        os.kill(os.getpid(), signal.SIGTERM)
        signals.give_back()
        assert received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_signals_are_as_before_afterwards(signals) -> None:
    signals.give_back()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (signal.SIGINT, "Stopped by Ctrl-C (SIGINT); step 0 is saved in"),
        (signal.SIGTERM, "Stopped by SIGTERM, which horovodrun also sends at Ctrl-C; step 0"),
    ],
)
def test_the_log_says_ctrl_c(tmp_path, caplog, number: int, text: str) -> None:
    callback = Checkpoint(tmp_path)
    model = SimpleNamespace(optimizer=SimpleNamespace(iterations=0))
    callback.set_model(model)
    callback._saved_step = 0
    with caplog.at_level("WARNING"), pytest.raises(SystemExit) as ended:
        callback._finish(number)
    assert ended.value.code == 128 + number
    assert text in caplog.text
