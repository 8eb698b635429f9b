"""Errors that only say that another rank is gone are told in a few lines, all others as ever."""

from __future__ import annotations

import pytest
import tensorflow as tf

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
