"""Errors that only say that another rank is gone are told in a few lines, all others as ever."""

from __future__ import annotations

import sys

import pytest
import tensorflow as tf
import typer.main

from tfhybrid.job import last_words as module
from tfhybrid.job.last_words import last_words

OF_GRAPH = """Graph execution error:

Detected at node tfhybrid.dense.be87 defined at (most recent call last):
  File "train.py", line 18, in <module>

  File "keras/trainer.py", line 399, in fit

"""
HOROVOD = "Horovod has been shut down. This was caused by an exception on one of the ranks."
DIED = "rank 1 (pid 5 on host) has died"


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as found:
        raise error
    return found.value


@pytest.mark.parametrize("kind", [tf.errors.UnknownError, tf.errors.AbortedError])
@pytest.mark.parametrize("message", [HOROVOD, DIED])
def test_the_graph_is_left_out(kind, message) -> None:
    error = raised(kind(None, None, f"{OF_GRAPH}{message}\n\t [[{{{{node dense}}}}]] [Op:f_1]"))
    text = last_words(error, error.__traceback__)
    assert text is not None
    first, second, third = text.splitlines()
    assert first.startswith(f"{kind.__name__} at {__file__}:")
    assert second == message
    assert "another one did" in third


@pytest.mark.parametrize(
    "error",
    [
        tf.errors.InvalidArgumentError(None, None, f"{OF_GRAPH}Incompatible shapes"),
        ValueError(HOROVOD),
        KeyboardInterrupt(),
    ],
)
def test_other_errors_stay_as_they_are(error) -> None:
    assert last_words(error, None) is None


def printed(rank: int, error: BaseException, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Returns the lines that a rank prints when an error ends it, and no other rank ends."""
    module.shorten(rank, lambda _: False, pytest.fail)
    sys.excepthook(type(error), error, error.__traceback__)
    return capsys.readouterr().err.splitlines()


@pytest.fixture(params=[sys.__excepthook__, typer.main.except_hook], ids=["python", "command"])
def nobodys_hook(request, monkeypatch) -> None:
    """A hook that no script has set."""
    monkeypatch.setattr(sys, "excepthook", request.param)


@pytest.mark.usefixtures("nobodys_hook")
def test_another_rank_begins_with_one_line_and_keeps_its_traceback(capsys) -> None:
    error = raised(ValueError("no such column\nin two lines"))
    first, *traceback = printed(1, error, capsys)
    assert first.startswith(f"Rank 1 at {__file__}:")
    assert "raise error: ValueError: no such column (Rank 0 prints its traceback if" in first
    assert traceback[0] == "Traceback (most recent call last):"
    assert traceback[-2:] == ["ValueError: no such column", "in two lines"]


@pytest.mark.usefixtures("nobodys_hook")
def test_a_rank_leaves_before_it_waits_for_its_end(monkeypatch, capsys) -> None:
    monkeypatch.setattr(module, "_SECONDS_TO_TERMINATE", 0.0)
    printed_before = []
    module.shorten(
        1, lambda _: True, lambda: printed_before.extend(capsys.readouterr().err.splitlines())
    )
    error = raised(ValueError("wrong"))
    sys.excepthook(type(error), error, error.__traceback__)
    assert [line.partition(" at ")[0] for line in printed_before] == ["Rank 1"]
    assert capsys.readouterr().err.startswith("Traceback")


@pytest.mark.usefixtures("nobodys_hook")
@pytest.mark.parametrize(("rank", "error"), [(0, ValueError("wrong")), (1, KeyboardInterrupt())])
def test_rank_0_and_an_interrupt_print_the_traceback_alone(rank, error, capsys) -> None:
    assert printed(rank, raised(error), capsys)[0] == "Traceback (most recent call last):"


def test_a_hook_of_the_script_is_called_at_once(monkeypatch, capsys) -> None:
    calls = []
    monkeypatch.setattr(sys, "excepthook", lambda *each: calls.append(each))
    error = raised(ValueError("wrong"))
    assert printed(1, error, capsys) == []
    assert calls == [(ValueError, error, error.__traceback__)]
