"""Base class for batches from memory and from files: positions, and the dataset."""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from typing_extensions import override

from tfhybrid.data.position import Position, told
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.fit_data import FitData
from tfhybrid.data.samples.origin import Cut, Origin
from tfhybrid.data.samples.sample_elements import Element, dataset_of, element
from tfhybrid.data.samples.sharding import Shard, Steps
from tfhybrid.errors import ConfigError

_log = logging.getLogger("tfhybrid.data")


class _Begun(NamedTuple):
    """An epoch of which runs with another batch size, or number of ranks, made the first steps."""

    epoch: int
    first_step: int
    before: tuple[Cut, ...]


class ResumableBatches(FitData):
    """Batches of one rank that can be read from any position.

    `fit` reads them directly, with the same steps and order in each run:

    ```python
    model.fit(batches, epochs=3, callbacks=[tfhybrid.callbacks.Checkpoint("saved/", resume=True)])
    ```

    Args:
        samples: Number of samples in an epoch, over all ranks.
        batch_size: Samples per rank and step.
        seed: Seed of the shuffle, not negative.
        drop_remainder: Whether to drop an incomplete last batch.
        shard: Number of this rank, and number of ranks. `None` for this Horovod rank.

    Raises:
        ConfigError: `batch_size` or `seed` is out of range, or there is no batch for every rank.
    """

    def __init__(
        self, samples: int, batch_size: int, seed: int, drop_remainder: bool, shard: Shard | None
    ) -> None:
        super().__init__()
        self._seed = seed
        self._begun: _Begun | None = None
        self._shard = shard or Shard.of_this_process()
        self._steps = Steps(samples, batch_size, self._shard.size, drop_remainder)
        if seed < 0:
            raise ConfigError(f"seed must not be negative. Received: {seed}.")
        if self._steps.count == 0:
            raise ConfigError(
                f"An epoch needs a batch for each of {self._shard.size} ranks. Received: "
                f"{samples} samples for batches of {batch_size}, {drop_remainder=}."
            )

    @property
    @override
    def steps_per_epoch(self) -> int:
        return self._steps.count

    def position(self, steps: int) -> Position:
        """Returns the position after this many steps from the start of epoch 0.

        Args:
            steps: Number of steps.

        Raises:
            OSError: A file cannot be read.
        """
        return Position(*divmod(steps, self.steps_per_epoch), self._origin.as_json())

    def at(self, position: Position) -> Position:
        """Returns the position at which these batches continue where another run stopped.

        The run may have had another batch size, window or number of ranks. Then the rest of its
        epoch is cut anew, from the next sample on: no sample is left out or used twice. The epoch
        must have the same samples in the same order. From the start of an epoch on, any data may
        follow. What differs is logged as a warning, on rank 0.

        Args:
            position: Position that a checkpoint has. If it does not say to what data it belongs, it
                counts steps of these batches.

        Returns:
            The position, to continue with `dataset(*position)`. These batches remember how its
            epoch was cut.

        Raises:
            ConfigError: The position is within an epoch of other samples, or beyond its end. The
                message has both values.
            OSError: A file cannot be read.
        """
        self._begun = None
        mine = self._origin
        if position.data is None:
            return self._of_unknown_data(position, mine)
        saved = Origin.of(position.data)
        differences = saved.order_differences(mine)
        if position.starts_epoch:
            for difference in differences:
                self._warn(f"Epoch {position.epoch} begins with other data: {difference}")
            return Position(position.epoch, 0, mine.as_json())
        _check_same_epoch(position, saved, differences)
        if position.step == saved.steps_per_epoch:
            return Position(position.epoch + 1, 0, mine.as_json())
        return self._within(position, saved, mine)

    def batches(self, epoch: int = 0, step: int = 0, epochs: int | None = 1) -> Iterator[Clicks]:
        """Yields the batches of `dataset` as tables.

        Args:
            epoch: Epoch of the first batch. Default 0.
            step: Step of the first batch within its epoch. Default 0.
            epochs: Number of epochs, including the rest of the first one; `None` for no end.
                Default 1.

        Raises:
            ConfigError: At the first batch: there is no such position.
            DataError: A file is damaged.
        """
        self._check_position(epoch, step)
        numbers = itertools.count(epoch) if epochs is None else range(epoch, epoch + epochs)
        for current in numbers:
            yield from self._from_step(current, step if current == epoch else 0)

    @override
    def elements(self, epoch: int, step: int) -> Iterator[Element]:
        return map(element, self._from_step(epoch, step))

    @override
    def example(self, number: int) -> Element:
        return element(self._head())

    def __iter__(self) -> Iterator[Any]:
        """Yields the batches of epoch 0, like `dataset()`."""
        return iter(self.dataset())

    def dataset(self, epoch: int = 0, step: int = 0, epochs: int | None = 1) -> tf.data.Dataset:
        """Returns the batches from a position on, always the same ones.

        For `fit`, the batches themselves do: `model.fit(batches, epochs=3)`. The data set is for
        loops of your own, and for other operations of `tf.data`. Each epoch of an endless one is
        shuffled differently. `fit` would repeat a data set of one epoch, so give it the endless
        one:

        ```python
        data = batches.dataset(epochs=None).map(with_weights)
        model.fit(data, epochs=3, steps_per_epoch=batches.steps_per_epoch, shuffle=False)
        ```

        To resume within an epoch, call `tfhybrid.checkpoint.finish_epoch` before that `fit`.

        Args:
            epoch: Epoch of the first batch. Default 0.
            step: Step of the first batch within its epoch. Default 0.
            epochs: Number of epochs, including the rest of the first one; `None` for an endless
                dataset. Default 1.

        Returns:
            Elements `({name: [batch, length]}, label [batch, 1])`: int64 keys of each feature,
            float32 values of each dense column, float32 labels. A `Ragged` feature is a
            `tf.RaggedTensor` `[batch, None]`.

        Raises:
            ConfigError: There is no such position.
            tf.errors.InvalidArgumentError: During the iteration: a file is damaged (`DataError`).
            tf.errors.UnknownError: During the iteration: a file cannot be read (`OSError`).
        """
        self._check_position(epoch, step)
        static = self._steps.batch_size if self._steps.drop_remainder else None
        batches = dataset_of(
            lambda: map(element, self.batches(epoch, step, epochs)), self._example(), static
        )
        cardinality = (
            tf.data.INFINITE_CARDINALITY if epochs is None else epochs * self.steps_per_epoch - step
        )
        return batches.apply(tf.data.experimental.assert_cardinality(cardinality)).prefetch(
            tf.data.AUTOTUNE
        )

    @abc.abstractmethod
    def _epoch(self, epoch: int, before: Sequence[Cut], step: int) -> Iterator[Clicks]:
        """Yields the batches of what some runs have left of an epoch, from a step on.

        Args:
            epoch: Number of the epoch.
            before: Steps of these runs; usually none.
            step: Number of the first step, counted in what they have left.
        """

    @abc.abstractmethod
    def _described(self) -> Origin:
        """Returns the description of these batches, of which positions keep a copy."""

    def _head(self) -> Clicks:
        """Returns some samples that show the columns; by default none."""
        return self._example()

    @abc.abstractmethod
    def _example(self) -> Clicks:
        """Returns a table with the columns that every batch has; its samples are not used."""

    @functools.cached_property
    def _origin(self) -> Origin:
        return self._described()

    def _from_step(self, epoch: int, step: int) -> Iterator[Clicks]:
        begun = self._begun
        if begun is not None and begun.epoch == epoch and step >= begun.first_step:
            return self._epoch(epoch, begun.before, step - begun.first_step)
        return self._epoch(epoch, (), step)

    def _within(self, position: Position, saved: Origin, mine: Origin) -> Position:
        """Returns the position of these batches after the samples that a run has used."""
        if saved.step_form == mine.step_form:
            before, step = saved.before, position.step
        else:
            before = saved.cuts_until(position.step)
            self._warn_of_new_cut(position, saved, mine)
        mine = dataclasses.replace(mine, before=before)
        left = mine.left_after(before)
        if before is not saved.before:
            step = mine.first_step
            if step == mine.steps_per_epoch:
                self._warn(
                    f"The last {left} samples of epoch {position.epoch} are left out: fewer "
                    "than a step needs"
                )
                return Position(position.epoch + 1, 0, self._origin.as_json())
        self._begun = _Begun(position.epoch, mine.first_step, before)
        return Position(position.epoch, step, mine.as_json())

    def _of_unknown_data(self, position: Position, mine: Origin) -> Position:
        if position.step == 0:
            return Position(position.epoch, 0, mine.as_json())
        if position.step > self.steps_per_epoch:
            raise ConfigError(
                f"An epoch of these data has {self.steps_per_epoch} steps. "
                f"Received: a position at {told(position)}"
            )
        self._warn(
            f"The position at {told(position)} does not say of which batch size, ranks, seed and "
            "files its steps are; they are taken for steps of these batches. If a checkpoint of an "
            "older version has it, the next one will say so"
        )
        if position.step == self.steps_per_epoch:
            return Position(position.epoch + 1, 0, mine.as_json())
        return Position(*position, mine.as_json())

    def _warn_of_new_cut(self, position: Position, saved: Origin, mine: Origin) -> None:
        names = ("batch_size", "ranks", "window", "drop_remainder")
        changes = [
            f"{name} was {then}, and is {now}"
            for name, then, now in zip(names, saved.step_form, mine.step_form, strict=True)
            if then != now
        ]
        text = f"Epoch {position.epoch} continues at the next sample with other steps: "
        text += ", ".join(changes)
        if mine.window and mine.ranks < saved.ranks:
            text += (
                f". On fewer ranks, each holds more of a window of {mine.window} samples in "
                "memory: lower window if it has too little"
            )
        self._warn(text)

    def _warn(self, text: str) -> None:
        if self._shard.rank == 0:
            _log.warning("%s", text)

    def _check_position(self, epoch: int, step: int) -> None:
        if epoch < 0 or not 0 <= step < self.steps_per_epoch:
            raise ConfigError(
                f"A position needs epoch >= 0 and step in [0, {self.steps_per_epoch}). "
                f"Received: epoch {epoch}, step {step}."
            )


def _check_same_epoch(position: Position, saved: Origin, differences: list[str]) -> None:
    if differences:
        raise ConfigError(
            f"The job stopped at {told(position)}, within an epoch of other data than it is "
            "given now, so it cannot continue at the next sample. Give it the same data, or "
            "restore the weights alone with tfhybrid.checkpoint.restore(model, directory) and "
            f"save into another directory. Received: {'; '.join(differences)}"
        )
    end = saved.steps_per_epoch
    if not saved.first_step <= position.step <= end:
        raise ConfigError(
            f"An epoch of these data had {end} steps of {saved.batch_size} samples on each of "
            f"{saved.ranks} ranks. Received: a position at {told(position)}"
        )
