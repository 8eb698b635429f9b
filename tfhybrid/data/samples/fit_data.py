"""Data that Keras's `fit` reads epoch by epoch, each from the step that a callback chooses."""

from __future__ import annotations

import abc
import random
import weakref
from collections.abc import Iterator
from typing import Any

from tensorflow import keras

from tfhybrid._ending import EndingIterator
from tfhybrid._keras import IS_KERAS_3
from tfhybrid.errors import ConfigError

# Keras 2 has no data set with a hook at the start of an epoch.
_Base: Any = keras.utils.PyDataset if IS_KERAS_3 else object

_opened: weakref.ref[FitData] | None = None


class FitData(_Base, metaclass=abc.ABCMeta):  # type: ignore[misc]
    """Data set for `fit(data, epochs=3)`, with a known number of steps in each epoch.

    Keras numbers the batches of a `PyDataset` and shuffles the numbers. Here, the batches of an
    epoch come one after the other instead, in the order of the data, whatever the numbers are. The
    first epoch that `fit` reads is epoch 0, unless a callback of tfhybrid calls `begin`.

    `fit`, `evaluate` and `predict` read on one thread at a time. One object can serve one of them
    at a time.
    """

    def __init__(self) -> None:
        if IS_KERAS_3:
            super().__init__()
        self._next = (0, 0)  # epoch and step at which the next epoch of `fit` begins
        self._running = False
        self._reading: Iterator[Any] | None = None
        self._left = 0  # batches that are left in the epoch
        self._random_state: Any = None

    @property
    @abc.abstractmethod
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch, the same on every rank."""

    @abc.abstractmethod
    def elements(self, epoch: int, step: int) -> Iterator[Any]:
        """Yields the batches of an epoch as NumPy arrays and ragged tensors, from a step on.

        Args:
            epoch: Number of the epoch, from 0.
            step: Number of the first step.
        """

    @abc.abstractmethod
    def example(self, number: int) -> Any:
        """Returns a batch that shows the columns, such as the first one of epoch 0.

        Args:
            number: Number of the batch.
        """

    @property
    def is_read(self) -> bool:
        """Whether `fit`, or another method of a model, is within an epoch of these data."""
        return self._running

    def begin(self, epoch: int, step: int) -> None:
        """Sets the position at which the next epoch of `fit` begins.

        Args:
            epoch: Number of the epoch.
            step: Number of its first step.
        """
        self._next = (epoch, step)

    @property
    def workers(self) -> int:
        """Number of threads of Keras that read: one. Keras asks for it when `fit` opens the data.

        So this also ends an epoch that was interrupted, as by Ctrl-C in a notebook.
        """
        global _opened
        _opened, self._next = weakref.ref(self), (0, 0)
        self._running, self._reading = False, None
        return 1

    def __len__(self) -> int:
        """Returns the number of batches in an epoch."""
        return self.steps_per_epoch

    @property
    def num_batches(self) -> int:
        """Number of batches that are left in the epoch that `fit` reads."""
        if self._reading is None:
            # Keras shuffles the numbers of the batches next, and draws from Python's generator.
            self._random_state = random.getstate()
        return self.steps_per_epoch - self._next[1]

    def on_epoch_begin(self) -> None:
        """Starts to read an epoch. Called by Keras."""
        global _opened
        _opened = None
        self._running, self._reading = True, None

    def on_epoch_end(self) -> None:
        """Ends the epoch; the next one begins at its first step. Called by Keras."""
        if self._running:
            self._next = (self._next[0] + 1, 0)
        self._running, self._reading = False, None

    def __getitem__(self, index: int) -> Any:
        """Returns the next batch of the epoch; outside an epoch, an example.

        Keras asks for examples when `fit` begins, to see the columns.

        Args:
            index: Number of the batch, which counts only outside an epoch.
        """
        if not self._running:
            return self.example(index)
        if self._reading is None:
            self._left = self.steps_per_epoch - self._next[1]
            self._reading = EndingIterator(self.elements(*self._next))
            random.setstate(self._random_state)
        batch = next(self._reading)
        self._left -= 1
        if self._left == 0:
            next(self._reading, None)  # runs what comes after the last batch
        return batch


def take_opened() -> FitData | None:
    """Returns the data that `fit` has opened and not begun to read, or `None` for other data.

    The next call returns `None`, unless `fit` is called again.
    """
    global _opened
    data, _opened = None if _opened is None else _opened(), None
    return data


def check_steps(data: FitData, steps: int | None) -> None:
    """Checks that `fit` reads whole epochs.

    Args:
        data: Data that `fit` reads.
        steps: Number of steps in an epoch of `fit`.

    Raises:
        ConfigError: `fit` has another number of steps than the data.
    """
    if steps != data.steps_per_epoch:
        raise ConfigError(
            f"fit must read whole epochs of these data, {data.steps_per_epoch} steps: leave out "
            f"steps_per_epoch. Received: {steps} steps per epoch"
        )
