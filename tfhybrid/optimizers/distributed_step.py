"""One step over all ranks: the exchange of gradients and their application."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tfhybrid import distributed
from tfhybrid._keras import path_of
from tfhybrid.core.meetings import Meeting
from tfhybrid.errors import ConfigError
from tfhybrid.job import current_job
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.ops import update_ops
from tfhybrid.ops.lookup import FeatureKeys, lookup
from tfhybrid.ops.meeting_ops import MeetingRef
from tfhybrid.ops.update_ops import Contribution, StepNumbers
from tfhybrid.optimizers import dense_step
from tfhybrid.optimizers.fit_state import FitState
from tfhybrid.optimizers.micro_batches import MicroBatches
from tfhybrid.optimizers.pass_boundary import LONGEST_PASS, PassBoundary, agree
from tfhybrid.optimizers.sparse_update import SparseUpdate, no_gradients, samples_in

_log = logging.getLogger("tfhybrid.optimizers")

ON_NONFINITE = ("raise", "skip")
UPDATES = ("batch", "pass")


class Trained:
    """Tables and dense variables that have gradients in a step, with the functions to train them.

    Args:
        proxies: Proxies of the tables.
        variables: Dense variables.
        rate: Function that returns the learning rate of the dense variables.
        rates: Function that returns the learning rates of the tables, float32 `[tables]`.
        apply_dense: Function that applies gradients, one per dense variable, and counts the step.
        count: Function that counts a step in which nothing is applied.
    """

    def __init__(
        self,
        proxies: Sequence[TableProxy],
        variables: Sequence[Any],
        rate: Callable[[], tf.Tensor],
        rates: Callable[[], tf.Tensor],
        apply_dense: Callable[[list[tf.Tensor]], None],
        count: Callable[[], None],
    ) -> None:
        self.proxies = list(proxies)
        self.variables = list(variables)
        self.rate = rate
        self.rates = rates
        self.apply_dense = apply_dense
        self.count = count

    def same_as(self, other: Trained) -> bool:
        """Returns whether both have the same tables and variables, in the same order."""
        mine, theirs = [*self.proxies, *self.variables], [*other.proxies, *other.variables]
        return len(mine) == len(theirs) and all(a is b for a, b in zip(mine, theirs, strict=True))


class GradientSink(Protocol):
    """Receiver of the gradients of a job with one rank, in place of the weights."""

    def take(self, trained: Trained, contribution: Contribution, dense: list[tf.Tensor]) -> None:
        """Takes the gradients of a step. Called while the graph of the step is traced.

        Args:
            trained: Tables and variables that have gradients.
            contribution: Gradients of the tables, and the failure if any gradient is not finite.
            dense: Averaged gradients, one per dense variable.
        """


class DistributedStep:
    """The part of an optimizer step that needs all ranks.

    Args:
        sparse_update: Part of the step that updates the tables.
        on_nonfinite: Reaction to a gradient that is not finite, `"raise"` or `"skip"`.
        micro_batch_count: Number of micro-batches per step.
        dense: Way to add up dense gradients, one of `dense_step.WAYS`.
        update: Unit of an update, `"batch"` or `"pass"`. With `"pass"`, a step has as many
            micro-batches as the pass has batches.

    Attributes:
        fit: State of the running `fit`, which callbacks and checkpoints read and change.

    Raises:
        ConfigError: An argument is out of range, or they contradict each other.
    """

    def __init__(
        self,
        sparse_update: SparseUpdate,
        on_nonfinite: str,
        micro_batch_count: int,
        dense: str,
        update: str,
    ) -> None:
        if on_nonfinite not in ON_NONFINITE:
            raise ConfigError(
                f"on_nonfinite must be one of {ON_NONFINITE}. Received: {on_nonfinite!r}"
            )
        if not isinstance(micro_batch_count, int) or micro_batch_count < 1:
            raise ConfigError(
                "backward_passes_per_step must be a number of calls, at least 1. "
                f"Received: {micro_batch_count!r}"
            )
        if update not in UPDATES or (update == "pass" and micro_batch_count > 1):
            raise ConfigError(
                f"update must be one of {UPDATES}, and backward_passes_per_step 1 with 'pass': the "
                "passes of the data determine the batches of a step. "
                f"Received: update={update!r}, backward_passes_per_step={micro_batch_count!r}"
            )
        dense_step.check_way(dense)
        self.sparse_update = sparse_update
        self.dense = dense
        self.micro_batch_count = micro_batch_count
        self.update = update
        self.micro_batches = MicroBatches(micro_batch_count > 1 or update == "pass")
        # Decides where a pass ends; None with update="batch".
        self.boundary = PassBoundary(self.micro_batches) if update == "pass" else None
        self.fit = FitState()
        self._sink: GradientSink | None = None
        self._raises = on_nonfinite == "raise"
        self._trained: Trained | None = None
        self._reduce_without_samples: Any = None
        self._use_without_samples: Any = None
        self._agree_without_data: Any = None

    @property
    def built(self) -> bool:
        """Whether `build` was called, so the tables and variables are known."""
        return self._trained is not None

    def choose_dense(self) -> None:
        """Sets `dense` to the best way of averaging dense gradients in this job, if it is "auto".

        Every rank must call it.
        """
        self.dense = dense_step.choose_way(self.dense, self.sparse_update.exchange)
        if self.dense == "horovod" and distributed.has_long_cycle() and distributed.rank() == 0:
            _log.warning(
                "Every step waits for Horovod's next cycle, which is 20 ms on one host unless you "
                "set HOROVOD_CYCLE_TIME=5 or less; dense='auto' does not need it there."
            )

    def build(self, trained: Trained) -> None:
        """Sets the tables and variables that this rank exchanges, also in steps without data.

        Args:
            trained: Tables and dense variables that have gradients in a step.
        """
        self.micro_batches.build(trained.variables)
        self._remember(trained)

    def send_to(self, sink: GradientSink | None) -> None:
        """Sends the gradients of later steps to a sink instead of applying them.

        A graph that is already traced does not change: trace it again.

        Args:
            sink: Receiver of the gradients; `None` applies them to the weights again.
        """
        self._sink = sink
        if self._trained is not None:
            trained, self._trained = self._trained, None
            self._remember(trained)

    def run(
        self,
        trained: Trained,
        sparse: Sequence[tf.IndexedSlices],
        dense: Sequence[tf.Tensor],
    ) -> None:
        """Runs a step, or one micro-batch of a step. Every rank must call it or `join`.

        Args:
            trained: Tables and variables that have gradients.
            sparse: Gradients of the tables, in the order of `trained.proxies`.
            dense: Gradients of the dense variables, in the order of `trained.variables`.

        Raises:
            ConfigError: The optimizer was not built for one of the tables.
            tf.errors.OpError: A gradient is not finite, an earlier update failed, or another rank
                has ended.
        """
        self._remember(trained)
        if tf.executing_eagerly():
            self._run_in_graph(list(sparse), list(dense))
        else:
            self._run(trained, sparse, dense)

    def _run(
        self,
        trained: Trained,
        sparse: Sequence[tf.IndexedSlices],
        dense: Sequence[tf.Tensor],
    ) -> None:
        samples = samples_in(sparse)
        problem = dense_step.find_nonfinite(dense, trained.variables, trained.rate)
        if trained.proxies:
            update = self.sparse_update.update_of(trained.proxies)
            micro_batches = self.micro_batch_count if self.boundary is None else LONGEST_PASS
            summands = distributed.size() * micro_batches
            in_tables = update_ops.find_nonfinite(update, sparse, summands)
            problem = tf.where(tf.equal(in_tables, ""), problem, in_tables)
        if not self.micro_batches.several:
            self._finish(trained, sparse, dense, samples, problem)
            return
        waiting = self.micro_batches.add(trained.variables, dense, samples, problem)
        with tf.device("CPU:0"):
            length = tf.constant(self.micro_batch_count, tf.int64)
            if self.boundary is not None:
                length = self.boundary.length(waiting, self._meeting(trained, "pass"))
            complete = tf.equal(waiting, length)

        def step() -> None:
            self.micro_batches.take(
                trained.variables, lambda *taken: self._finish(trained, sparse, *taken)
            )

        def keep() -> None:
            if trained.proxies:
                update_ops.keep_gradients(self.sparse_update.update_of(trained.proxies), sparse)

        tf.cond(complete, _branch(step), _branch(keep))

    def join(self) -> None:
        """Joins the other ranks' steps with zero samples until every rank has called it.

        Raises:
            ConfigError: There are several ranks, and the optimizer is not built.
            tf.errors.OpError: Another rank has ended, or an earlier update failed.
        """
        if not self.built:
            if distributed.size() == 1:
                return
            raise ConfigError(
                "A rank can only join the others' steps after its own optimizer is built: call "
                "optimizer.build(model.trainable_variables) if a rank may have no batch at all. "
                f"Received: an optimizer that was not built on {distributed.here()}"
            )
        if self.micro_batches.waiting:
            self._flush()
        if distributed.size() == 1:
            return
        while self._idle_step():
            pass

    def _remember(self, trained: Trained) -> None:
        """Remembers the shapes to exchange, for steps in which this rank has no data."""
        if self._trained is not None and self._trained.same_as(trained):
            return
        self._trained = trained

        # In graphs, because Horovod matches the operations of ranks by their names, and eager
        # operations have none.
        @tf.function(autograph=False, reduce_retracing=True)
        def run_in_graph(sparse: list[tf.IndexedSlices], dense: list[tf.Tensor]) -> None:
            self._run(trained, sparse, dense)

        # Two graphs for steps without samples: if all ranks end together, the larger one is never
        # traced. They take arguments, because TensorFlow would fold a sum of constants.
        @tf.function(autograph=False)
        def reduce(samples: tf.Tensor) -> dense_step.DenseStep:
            zeros = [
                tf.zeros(variable.shape, variable.dtype) * tf.cast(samples, variable.dtype)
                for variable in trained.variables
            ]
            meeting = self._meeting(trained, "step")
            return self._reduce(zeros, samples, False, tf.constant(False), meeting)

        @tf.function(autograph=False)
        def use(*fields: tf.Tensor) -> None:
            none = no_gradients(trained.proxies), tf.constant(0, tf.int64), tf.constant("")
            step = dense_step.DenseStep([*fields[:-4]], *fields[-4:])
            self._apply(trained, self._contribution(*none), lambda: step)

        @tf.function(autograph=False)
        def agree_without_data(offered: tf.Tensor) -> tf.Tensor:
            return agree(offered, self._meeting(trained, "pass"))

        self._run_in_graph = run_in_graph
        self._agree_without_data = agree_without_data
        self._reduce_without_samples = reduce
        self._use_without_samples = use

    def _idle_step(self) -> bool:
        """Joins one step without samples. Returns whether any rank still trains."""
        trained = self._trained
        assert trained is not None
        for callback in self.fit.callbacks:
            callback.before_step()
        if self.boundary is not None and not self._agree_without_data(tf.constant(0, tf.int64)):
            return False
        step = self._reduce_without_samples(tf.constant(0, tf.int64))
        if not step.active:
            return False
        self._use_without_samples(
            *step.gradients, step.samples, step.active, step.nonfinite, step.stopping
        )
        for callback in self.fit.callbacks:
            callback.after_step()
        return True

    def _meeting(self, trained: Trained, what: str) -> MeetingRef:
        """Returns the meeting of a `"step"` or a `"pass"`.

        Ranks meet only if they train the same tables and variables in it.
        """
        # Keras may number paths differently on each rank, so the order identifies variables.
        numbers = {
            id(variable): number for number, variable in enumerate(self.sparse_update.variables)
        }
        meeting = Meeting(
            what,
            self.sparse_update.name,
            tuple(proxy.table.name for proxy in trained.proxies),
            tuple(
                f"variable {numbers.get(id(variable), '?')} ({tf.as_dtype(variable.dtype).name} "
                f"{list(variable.shape)})"
                for variable in trained.variables
            ),
            tuple(path_of(variable) for variable in trained.variables),
        )
        engine = current_job().engine
        engine.meetings[meeting.signature] = meeting
        return MeetingRef(engine.number, meeting)

    def _flush(self) -> None:
        trained = self._trained
        assert trained is not None

        @tf.function(autograph=False)
        def flush() -> None:
            self.micro_batches.take(
                trained.variables,
                lambda *taken: self._finish(trained, no_gradients(trained.proxies), *taken),
            )

        flush()

    def _finish(
        self,
        trained: Trained,
        sparse: Sequence[tf.IndexedSlices],
        dense: Sequence[tf.Tensor],
        samples: tf.Tensor,
        problem: tf.Tensor,
    ) -> None:
        nonfinite = tf.not_equal(problem, "")
        if not self._raises:
            tf.cond(
                nonfinite,
                lambda: tf.py_function(self._warn, [problem], tf.int64),
                lambda: tf.constant(0, tf.int64),
            )
        self._apply(
            trained,
            self._contribution(sparse, samples, problem),
            lambda: self._reduce(dense, samples, True, nonfinite, self._meeting(trained, "step")),
        )

    def _reduce(
        self,
        dense: Sequence[tf.Tensor],
        samples: tf.Tensor,
        active: bool,
        nonfinite: tf.Tensor,
        meeting: MeetingRef,
    ) -> dense_step.DenseStep:
        mine = dense_step.DenseStep([*dense], samples, active, nonfinite, self.fit.stop.own)
        step = dense_step.reduce(mine, meeting, self.dense)
        self.fit.stop.receive(step.stopping)
        return step

    def _contribution(
        self, sparse: Sequence[tf.IndexedSlices], samples: tf.Tensor, problem: tf.Tensor
    ) -> Contribution:
        with tf.device("CPU:0"):
            nonfinite = tf.not_equal(problem, "")
            why = tf.strings.join(
                ["The gradient of ", problem, f" on {distributed.here()}. No table was updated"]
            )
            return Contribution(
                gradients=sparse,
                samples=samples,
                skip=tf.logical_and(nonfinite, not self._raises),
                event_time=self.sparse_update.event_time(),
                failure=tf.where(tf.logical_and(nonfinite, self._raises), why, ""),
            )

    def _apply(
        self,
        trained: Trained,
        contribution: Contribution,
        reduce: Callable[[], dense_step.DenseStep],
    ) -> None:
        """Posts the sparse gradients, and applies all ranks' gradients to the dense variables.

        For a restart from memory, dense weights are updated and kept first, and sparse gradients
        are posted afterwards. So if a table has an update, its dense state has been kept.
        """
        if self._sink is not None:
            self._sink.take(trained, contribution, reduce().gradients)
            trained.count()
            return
        keeper = self.sparse_update.keeper
        if self.sparse_update.clipping.kind == "global_norm":
            step = self._apply_clipped(trained, contribution, reduce())
        elif not trained.proxies:
            step = self._apply_dense(trained, reduce())
        elif keeper is None:
            self._update_tables(trained, contribution, trained.rates())
            step = self._apply_dense(trained, reduce())
        else:
            rates = tf.identity(trained.rates())  # before the dense step counts up
            step = self._apply_dense(trained, reduce())
            with tf.control_dependencies([keeper.keep(trained.proxies)]):
                self._update_tables(trained, contribution, rates)
        if self._raises:
            tf.cond(
                step.failed,
                _branch(lambda: _raise(trained.proxies)),
                _branch(lambda: None),
            )

    def _update_tables(
        self, trained: Trained, contribution: Contribution, rates: tf.Tensor
    ) -> None:
        update = self.sparse_update.update_of(trained.proxies)
        numbers = StepNumbers(rates, tf.zeros([], tf.float64))
        self.sparse_update.apply(update, contribution, numbers)

    def _apply_clipped(
        self, trained: Trained, contribution: Contribution, step: dense_step.DenseStep
    ) -> dense_step.DenseStep:
        """Applies gradients clipped by the global norm, over dense variables and tables together.

        The post contains the dense part of the norm. The leader returns the factor with the tables'
        next version, so the dense step waits for that version.
        """
        squares = update_ops.square_sum(step.gradients)
        if trained.proxies:
            update = self.sparse_update.update_of(trained.proxies)
            self.sparse_update.apply(update, contribution, StepNumbers(trained.rates(), squares))
            factor = update_ops.clip_factor(update)
        else:
            limit = tf.constant(self.sparse_update.clipping.limit, tf.float64)
            factor = limit / tf.maximum(tf.sqrt(squares), limit)
        clipped = [gradient * tf.cast(factor, gradient.dtype) for gradient in step.gradients]
        return self._apply_dense(trained, step._replace(gradients=clipped))

    def _apply_dense(self, trained: Trained, step: dense_step.DenseStep) -> dense_step.DenseStep:
        tf.cond(
            step.applies,
            _branch(lambda: trained.apply_dense(step.gradients)),
            _branch(trained.count),
        )
        return step

    def _warn(self, problem: tf.Tensor) -> int:
        _log.warning(
            "The gradient of %s on %s: the step is skipped on all ranks",
            problem.numpy().decode(),
            distributed.here(),
        )
        return 0


def _raise(proxies: Sequence[TableProxy]) -> None:
    """Raises the error that some rank found in its gradients, on this rank too."""
    if not proxies:
        tf.debugging.Assert(False, ["A gradient is not finite, or too large, on one of the ranks"])
        return
    # The next lookup raises the failure of an update, including its text.
    lookup([proxies[0].table_ref], [FeatureKeys(tf.zeros([0], tf.int64))])


def _branch(do: Callable[[], None]) -> Callable[[], tf.Tensor]:
    """Wraps `do` as a branch of `tf.cond`, whose branches must return the same types."""

    def branch() -> tf.Tensor:
        do()
        return tf.constant(0)

    return branch
