"""Restart from memory: a model's dense state is kept beside its tables, and found by the next run.

Each rank keeps what it has of its own: dense weights, the optimizer, what is not trained, the
states of random generators, and where its data stand. The state after step k + 1 is complete before
the rank posts its gradients of that step, so wherever a table has an update, every rank keeps the
state that goes with it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid._keras import VERSION as KERAS_VERSION
from tfhybrid._version import __version__
from tfhybrid.checkpoint import dense, random_state
from tfhybrid.checkpoint.random_state import RandomState
from tfhybrid.core.kept_state import KeptState
from tfhybrid.data.position import AnyPosition, Position, cursor_of, position_of, told
from tfhybrid.errors import ConfigError, StoreError, TfhybridError
from tfhybrid.job import current_job
from tfhybrid.job.resumption import Openable
from tfhybrid.ops import update_ops
from tfhybrid.optimizers.recipe import described, recipe_of
from tfhybrid.store import metrics

_log = logging.getLogger("tfhybrid.checkpoint")

POSITION_BYTES = 4096
"""Most bytes of JSON of a position that is kept."""


class Keeper:
    """Keeps the dense state of a model at every step, on this rank.

    Args:
        kept: Where it keeps it.
        model: Compiled with `tfhybrid.DistributedOptimizer`, which is built.
        configuration: What must be the same in the run that goes on from here, as JSON has it.
    """

    def __init__(self, kept: KeptState, model: keras.Model, configuration: dict[str, Any]) -> None:
        self._kept = kept
        self._model = model
        self._configuration = configuration
        # The optimizer's step and the batches trained, where the position was noted.
        self._noted_step = np.zeros((), np.int64)
        self._noted_batches = np.zeros((), np.int64)
        self._noted = np.zeros(POSITION_BYTES, np.uint8)  # the position, as JSON; then spaces

    def difference(self) -> str | None:
        """Returns why what the last run kept is not of this configuration, or `None`."""
        try:
            found = json.loads(self._kept.find())
        except (TfhybridError, ValueError) as error:
            return str(error)
        for what in [*self._configuration, *found]:
            then, now = found.get(what), self._configuration.get(what)
            if then != now:
                return f"{what} was {json.dumps(then)}, and is {json.dumps(now)}"
        return None

    def resume(self, step: int) -> AnyPosition:
        """Takes over the state of a step, and returns where the data stood then."""
        content = self._kept.resume(step, self._size())
        noted_step, noted_batches, noted, *random = _split(content, self._note())
        RandomState.of(dict(zip(random_state.gather(), random, strict=True))).assign()
        variables = self._variables()
        values = _split(content[-_bytes(map(np.asarray, variables)) :], map(np.asarray, variables))
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        position = self._advance(
            position_of(json.loads(noted.tobytes())),
            step - int(noted_step),
            self._batches() - int(noted_batches),
        )
        self._begin(position)
        return position

    def start(self, position: AnyPosition) -> None:
        """Keeps every state from now on, as of training that goes on from a position."""
        self._kept.make(json.dumps(self._configuration), self._size())
        self._begin(position)

    def note(self, position: AnyPosition | None = None) -> None:
        """Notes, before a step, where the data stand, and the states of random generators.

        Args:
            position: Of the step. By default they stand one step further with every step.

        Raises:
            ConfigError: It is larger than what is kept.
        """
        if position is not None:
            text = json.dumps(cursor_of(position), separators=(",", ":")).encode()
            if len(text) > POSITION_BYTES:
                raise ConfigError(
                    f"A position of at most {POSITION_BYTES} bytes of JSON is kept. "
                    f"Received: {len(text)} bytes, {text[:100]!r}"
                )
            self._noted[:] = np.frombuffer(text.ljust(POSITION_BYTES), np.uint8)
            self._noted_step[()] = int(self._model.optimizer.iterations)
            self._noted_batches[()] = self._batches()
        self._kept.note(b"".join(array.tobytes() for array in self._note()))

    def keep(self, proxies: Sequence[Any]) -> tf.Operation:
        """Keeps the state as it is; a part of the step, before its gradients are posted.

        Args:
            proxies: Of the tables that have a gradient.
        """
        state = [tf.convert_to_tensor(variable) for variable in self._variables()]
        step = tf.cast(tf.convert_to_tensor(self._model.optimizer.iterations), tf.int64)
        return update_ops.keep_state([proxy.table_ref for proxy in proxies], step, state)

    def _begin(self, position: AnyPosition) -> None:
        self.note(position)
        self._model.optimizer.sparse_update.keeper = self

    def _variables(self) -> list[Any]:
        boundary = self._model.optimizer.distributed_step.boundary
        counted: list[Any] = [] if boundary is None else [boundary.total]
        generator = tf.random.get_global_generator()
        return [*counted, *dense.variables_of(self._model), generator.state]

    def _batches(self) -> int:
        """Returns how many batches this rank has trained, those of steps that are done."""
        step = self._model.optimizer.distributed_step
        if step.boundary is not None:
            return step.boundary.trained - step.boundary.waiting
        return int(self._model.optimizer.iterations) * step.passes

    def _note(self) -> list[np.ndarray]:
        return [self._noted_step, self._noted_batches, self._noted, *random_state.gather().values()]

    def _advance(self, noted: AnyPosition, steps: int, batches: int) -> AnyPosition:
        """Returns where the data stand so many steps and batches after one was noted."""
        if isinstance(noted, Position):
            return Position(noted.epoch, noted.step + batches)
        if steps > 1:
            raise StoreError(
                f"where the data stand was kept {steps} steps before, and only a Position tells "
                f"how they go on from there: {told(noted)}"
            )
        return noted

    def _size(self) -> int:
        return _bytes([*self._note(), *map(np.asarray, self._variables())])


def resume(model: keras.Model, *, whole: bool) -> AnyPosition | None:
    """Gives a model what the last run of the job left in memory; every rank must call it.

    Afterwards the tables of the job are open, and what comes of its steps is kept.

    Args:
        model: Compiled with `tfhybrid.DistributedOptimizer`.
        whole: Whether the newest state is wanted, all of it.

    Returns:
        Where training goes on, or `None` where the job does not resume from memory: then its tables
        are as they were, or fresh in a job that has not begun.
    """
    resumption = current_job().resumption
    if resumption is None or resumption.settled:
        return None
    model.optimizer.build(model.trainable_variables)
    # Now, because a checkpoint brings its own learning rate.
    resumption.configuration = _configuration(model, resumption.tables)
    keeper = Keeper(resumption.kept, model, resumption.configuration)
    why_not = resumption.absence
    if why_not is None:
        why_not, position = _resume(keeper, whole)
        if why_not is None:
            resumption.settled = True
            return position
        current_job().discard_recovered()
    resumption.open_tables()
    resumption.settled = True
    if distributed.rank() == 0:
        level = logging.INFO if resumption.absence else logging.WARNING
        _log.log(level, "Not resumed from memory: %s", why_not)
    return None


def start(model: keras.Model, position: AnyPosition) -> None:
    """Keeps a model's states from now on, in a job that may go on from memory.

    Args:
        model: Compiled with `tfhybrid.DistributedOptimizer`, which is built.
        position: Where training goes on.
    """
    resumption = current_job().resumption
    if resumption is None:
        return
    if resumption.optimizers != 1:
        if distributed.rank() == 0:
            _log.warning(
                "No state is kept for a restart from memory, which takes a job of one optimizer "
                "for its tables. Received: %d",
                resumption.optimizers,
            )
        return
    if model.optimizer.sparse_update.clipping.kind == "global_norm":
        if distributed.rank() == 0:
            _log.warning(
                "No state is kept for a restart from memory, which needs the dense half of a step "
                "before the tables' half: global_clipnorm needs it behind. clipnorm does not"
            )
        return
    keeper = Keeper(resumption.kept, model, resumption.configuration)
    distributed.together(lambda: keeper.start(position))


def keep_position(model: keras.Model, position: AnyPosition) -> None:
    """Notes where the data stand before a step, for a restart from memory.

    A `Position` advances by itself: one step further with every step. Any other position is kept
    before every step, as it is once that step is done.

    In a loop of one's own, where an epoch begins; call it before every step where Python's or
    NumPy's random generators are used. `tfhybrid.callbacks.HotRestart` does so in `fit`. Without
    `tfhybrid.init(resume="memory")` it does nothing.

    Args:
        model: As given to `restore`.
        position: The epoch, and the steps of it that are done; or another position.

    Raises:
        ConfigError: It is no object of JSON, or larger than the 4096 bytes that are kept.

    Example:

    ```python
    for epoch in range(position.epoch, 10):
        first = position.step if epoch == position.epoch else 0
        tfhybrid.checkpoint.keep_position(model, tfhybrid.data.Position(epoch, first))
        for batch in batches.dataset(epoch, first):
            train_step(batch)
    ```
    """
    keeper = keeper_of(model)
    if keeper is not None:
        keeper.note(position)


def keeper_of(model: keras.Model) -> Keeper | None:
    """Returns what keeps a model's states, if something does."""
    update = getattr(model.optimizer, "sparse_update", None)
    return None if update is None else update.keeper


def _resume(keeper: Keeper, whole: bool) -> tuple[str | None, AnyPosition | None]:
    """Returns why it is not resumed, on all ranks, or where it goes on."""
    if not whole:
        return "a step, tables or no weights were asked for", None
    for rank, difference in enumerate(distributed.allgather_object(keeper.difference())):
        if difference is not None:
            return f"rank {rank}: {difference}", None
    resumption = current_job().resumption
    assert resumption is not None
    try:
        resumption.open_tables()
        kept = distributed.allgather_object(resumption.kept.steps())
        common = set(kept[0]).intersection(*kept[1:])
        if not common:
            return f"the ranks keep no state in common that goes with the tables: {kept}", None
        step = max(common)
        position = distributed.together(lambda: keeper.resume(step))
    except TfhybridError as error:
        return str(error), None
    metrics.note(metrics.RESUMED_STEP, step, "memory")
    _log.info("Resumed from memory at step %d, going on at %s", step, told(position))
    return None, position


def _configuration(model: keras.Model, tables: Iterable[Openable]) -> dict[str, Any]:
    """Returns what must be the same for a state in memory to be of use, as JSON has it."""
    job = current_job()
    update = getattr(model.optimizer, "sparse_update", None)
    if update is None:
        raise ConfigError(
            "resume='memory' wants a model that is compiled with tfhybrid.DistributedOptimizer. "
            f"Received: {model.optimizer!r}"
        )
    recipe = recipe_of(model.optimizer)
    variables = dense.variables_of(model)
    configuration = {
        "the version of tfhybrid": __version__,
        "the version of TensorFlow": tf.__version__,
        "the version of Keras": KERAS_VERSION,
        "the host of each rank": job.hosts,
        "the embedding nodes": job.engine.nodes,
        "the rank": distributed.rank(),
        "the seed": job.seed,
        **{f"the {what}": value for what, value in recipe.items()},
        **{f"the table '{table.name}'": described(table) for table in tables},
        **{
            f"kept variable {number}": [list(variable.shape), tf.as_dtype(variable.dtype).name]
            for number, variable in enumerate(variables)
        },
    }
    return json.loads(json.dumps(configuration, default=str))


def _bytes(arrays: Iterable[np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays)


def _split(content: bytes, like: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Returns arrays that lie end to end."""
    arrays, at = [], 0
    for array in like:
        size = array.nbytes
        arrays.append(np.frombuffer(content[at : at + size], array.dtype).reshape(array.shape))
        at += size
    return arrays
