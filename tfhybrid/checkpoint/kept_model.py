"""Restart from memory: each rank keeps the model's dense state beside the tables for the next run.

The state has the dense weights, the optimizer, the variables that are not trained, the states of
the random generators, and the rank's position in the data. The state after step k + 1 is complete
before the rank posts its gradients of that step. So if a table has an update, every rank has kept
the state that belongs to it.
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
from tfhybrid.features.description import describe
from tfhybrid.job import current_job
from tfhybrid.job.job import Job
from tfhybrid.job.resumption import Resumption
from tfhybrid.monitoring import metrics
from tfhybrid.ops import update_ops
from tfhybrid.optimizers.recipe import described, recipe_of

_log = logging.getLogger("tfhybrid.checkpoint")

POSITION_BYTES = 4096
"""Maximum size of a position, in bytes of JSON."""


class DenseKeeper:
    """Keeper of a model's dense state (weights, optimizer, position in the data) at every step.

    The state is that of this rank. Only the training thread may call the methods.

    Args:
        kept: Memory for the state, which survives this process.
        model: Model, compiled with a `tfhybrid.DistributedOptimizer` that is built.
        configuration: Settings that must be equal in a run that resumes from this state, as JSON.
    """

    def __init__(self, kept: KeptState, model: keras.Model, configuration: dict[str, Any]) -> None:
        self._kept = kept
        self._model = model
        self._configuration = configuration
        # The optimizer's step and the number of trained batches at the noted position.
        self._noted_step = np.zeros((), np.int64)
        self._noted_batches = np.zeros((), np.int64)
        self._noted = np.zeros(POSITION_BYTES, np.uint8)  # the position, JSON padded with spaces

    def difference(self) -> str | None:
        """Compares the last run's configuration (settings that must be equal) with this run's.

        Returns:
            The first difference, as text; `None` if there is none. An error in reading the last
            run's state is a difference, too.
        """
        try:
            last = json.loads(self._kept.find())
        except (TfhybridError, ValueError) as error:
            return str(error)
        for setting in [*self._configuration, *last]:
            then, now = last.get(setting), self._configuration.get(setting)
            if then != now:
                return f"{setting} was {json.dumps(then)}, and is {json.dumps(now)}"
        return None

    def resume(self, step: int) -> AnyPosition:
        """Restores the model to a step that the last run kept, and starts to keep later steps.

        Every rank must call it with the same step. Later kept states are dropped; from now on, the
        state after each training step is kept in memory.

        Args:
            step: Step to resume from; one of `KeptState.steps`.

        Returns:
            The position in the data after that step.

        Raises:
            CheckpointError: The random generators' part of the state is damaged.
            StoreError: No state of that step can be read, or it does not tell the position.
        """
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
        """Starts to keep the state of every step in memory, without restoring one.

        Args:
            position: Position at which training continues.

        Raises:
            ConfigError: The position is not a JSON object, or is too large.
            OutOfSpaceError: There is no memory for the states.
            StoreError: No store is open.
        """
        self._kept.make(json.dumps(self._configuration), self._size())
        self._begin(position)

    def note(self, position: AnyPosition | None = None) -> None:
        """Records, before a step, the position in the data and the states of random generators.

        Args:
            position: Position in the data. Default: the last recorded one, which advances by
                itself.

        Raises:
            ConfigError: The position is not a JSON object, or is too large.
        """
        if position is not None:
            text = _encoded(position)
            if len(text) > POSITION_BYTES:
                raise ConfigError(
                    f"A position must be at most {POSITION_BYTES} bytes of JSON. "
                    f"Received: {len(text)} bytes, {text[:100]!r}"
                )
            self._noted[:] = np.frombuffer(text.ljust(POSITION_BYTES), np.uint8)
            self._noted_step[()] = int(self._model.optimizer.iterations)
            self._noted_batches[()] = self._batches()
        self._kept.note(b"".join(array.tobytes() for array in self._note()))

    def keep(self, proxies: Sequence[Any]) -> tf.Operation:
        """Returns an operation that keeps the current state.

        The step's graph must run it before it posts the gradients.

        Args:
            proxies: Proxies of the tables that have a gradient.

        Returns:
            The operation, which TensorFlow runs once per step.
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
        generator = random_state.global_generator()
        return [*counted, *dense.variables_of(self._model), generator.state]

    def _batches(self) -> int:
        """Returns the number of batches that this rank has trained, in complete steps."""
        step = self._model.optimizer.distributed_step
        if step.boundary is not None:
            return step.boundary.trained - step.boundary.waiting
        return int(self._model.optimizer.iterations) * step.micro_batch_count

    def _note(self) -> list[np.ndarray]:
        return [self._noted_step, self._noted_batches, self._noted, *random_state.gather().values()]

    def _advance(self, noted: AnyPosition, steps: int, batches: int) -> AnyPosition:
        """Returns the position that is `steps` steps and `batches` batches after `noted`."""
        if isinstance(noted, Position):
            return noted.advanced(batches)
        if steps > 1:
            raise StoreError(
                "only a tfhybrid.data.Position can be advanced by several steps; other positions "
                f"must be kept before every step. Received: {told(noted)}, kept {steps} steps "
                "earlier"
            )
        return noted

    def _size(self) -> int:
        return _bytes([*self._note(), *map(np.asarray, self._variables())])


def resume(model: keras.Model, *, whole: bool) -> AnyPosition | None:
    """Resumes a model from the state that the job's last run left in memory.

    Every rank must call it. Afterwards the job's tables are open. If the job has resumed, the state
    after each step is kept; otherwise the caller restores a checkpoint and calls `start` of this
    module, which begins to keep the state. The log says why a job was not resumed.

    Args:
        model: Model, compiled with a `tfhybrid.DistributedOptimizer`.
        whole: Whether the user restores the newest step, all tables and the dense weights. If
            not, only a checkpoint can serve: the tables are opened, but the job is not resumed.

    Returns:
        The position at which training continues, or `None` if the job was not resumed. Tables
        that waited for this call are then new; others are unchanged.

    Raises:
        ConfigError: The model has no `tfhybrid.DistributedOptimizer`.
        TfhybridError: On all ranks: a table or a new store cannot be opened.
    """
    job = current_job()
    resumption = job.resumption
    if resumption is None or resumption.settled:
        return None
    model.optimizer.build(model.trainable_variables)
    # Read now, because a checkpoint replaces the learning rate.
    resumption.configuration = _configuration(model, job)
    keeper = DenseKeeper(resumption.kept, model, resumption.configuration)
    why_not = resumption.absence
    if why_not is None:
        why_not, position = _resume(keeper, resumption, whole)
        if why_not is None:
            resumption.settled = True
            return position
        job.discard_recovered()
    resumption.open_tables()
    resumption.settled = True
    if distributed.rank() == 0:
        level = logging.INFO if resumption.absence else logging.WARNING
        _log.log(level, "Not resumed from memory: %s", why_not)
    return None


def start(model: keras.Model, position: AnyPosition) -> None:
    """Keeps a model's state after each step from now on, if the job can resume from memory.

    Every rank must call it. Logs a warning if the model's optimizers do not allow it.

    Args:
        model: Model, compiled with a `tfhybrid.DistributedOptimizer` that is built.
        position: Position at which training continues.

    Raises:
        ConfigError: The position is not a JSON object, or is too large.
        StoreError: On all ranks: a rank has no memory for the states.
    """
    resumption = current_job().resumption
    if resumption is None:
        return
    if resumption.optimizers != 1:
        if distributed.rank() == 0:
            _log.warning(
                "No state is kept for a restart from memory: it needs a job with exactly one "
                "optimizer for its tables. Received: %d",
                resumption.optimizers,
            )
        return
    if model.optimizer.sparse_update.clipping.kind == "global_norm":
        if distributed.rank() == 0:
            _log.warning(
                "No state is kept for a restart from memory: the dense half of a step must run "
                "before the tables' half, but with global_clipnorm it runs after. Use clipnorm "
                "instead"
            )
        return
    keeper = DenseKeeper(resumption.kept, model, resumption.configuration)
    distributed.together(lambda: keeper.start(position))


def keep_position(model: keras.Model, position: AnyPosition) -> None:
    """Records the position in the data before a step, for a restart from memory.

    A `Position` advances by itself, by one with every step. Any other kind of position must be
    recorded before every step, with its value after that step.

    In a custom training loop, call this at the start of each epoch, or before every step if the
    program uses Python's or NumPy's random generators. In `fit`, `tfhybrid.callbacks.HotRestart`
    calls it. Without `tfhybrid.init(resume="memory")` it does nothing.

    Args:
        model: Model that was given to `restore`.
        position: Epoch and number of its completed steps, or another kind of position.

    Raises:
        ConfigError: The position is not a JSON object, or is larger than 4096 bytes.

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


def require_kept() -> None:
    """Checks that the job keeps its state in memory.

    Raises:
        ConfigError: The job was started without `resume="memory"`.
    """
    if current_job().resumption is None:
        raise ConfigError(
            'resume="memory" needs a job that keeps its state in memory: '
            'tfhybrid.init(job="NAME", resume="memory"). Received: a job without it'
        )


def keeper_of(model: keras.Model) -> DenseKeeper | None:
    """Returns the object that keeps a model's state after each step, or `None` if nothing keeps it.

    Args:
        model: Model that was given to `resume` or `start`.
    """
    update = getattr(model.optimizer, "sparse_update", None)
    return None if update is None else update.keeper


def _resume(
    keeper: DenseKeeper, resumption: Resumption, whole: bool
) -> tuple[str | None, AnyPosition | None]:
    """Resumes, or returns the reason why not: the same on all ranks, beside the position."""
    if not whole:
        return "step, tables or weights=False was given", None
    for rank, difference in enumerate(distributed.allgather_object(keeper.difference())):
        if difference is not None:
            return f"rank {rank}: {difference}", None
    try:
        resumption.open_tables()
        kept = distributed.allgather_object(resumption.kept.steps())
        common = set(kept[0]).intersection(*kept[1:])
        if not common:
            return f"the ranks have no common state that belongs to the tables: {kept}", None
        step = max(common)
        position = distributed.together(lambda: keeper.resume(step))
    except TfhybridError as error:
        return str(error), None
    metrics.note(metrics.RESUMED_STEP, step, "memory")
    _log.info("Resumed from memory at step %d, continuing at %s", step, told(position))
    return None, position


def _configuration(model: keras.Model, job: Job) -> dict[str, Any]:
    """Returns the settings that must be equal to use a state in memory, as JSON."""
    assert job.resumption is not None
    update = getattr(model.optimizer, "sparse_update", None)
    if update is None:
        raise ConfigError(
            "resume='memory' needs a model compiled with tfhybrid.DistributedOptimizer. "
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
        **{f"the feature {name!r}": feature for name, feature in describe(model).items()},
        **{f"the table '{table.name}'": described(table) for table in job.resumption.tables},
        **{
            f"kept variable {number}": [list(variable.shape), tf.as_dtype(variable.dtype).name]
            for number, variable in enumerate(variables)
        },
    }
    return json.loads(json.dumps(configuration, default=str))


def _encoded(position: AnyPosition) -> bytes:
    """Returns a position as JSON, without the list of its files if that is too long."""
    cursor = cursor_of(position)
    text = json.dumps(cursor, separators=(",", ":")).encode()
    if len(text) > POSITION_BYTES and isinstance(position, Position):
        cursor["data"] = {n: value for n, value in cursor["data"].items() if n != "files"}
        text = json.dumps(cursor, separators=(",", ":")).encode()
    return text


def _bytes(arrays: Iterable[np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays)


def _split(content: bytes, like: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Returns arrays that are concatenated in one buffer."""
    arrays, at = [], 0
    for array in like:
        size = array.nbytes
        arrays.append(np.frombuffer(content[at : at + size], array.dtype).reshape(array.shape))
        at += size
    return arrays
