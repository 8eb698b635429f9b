"""How ranks average dense gradients: in the order of ranks, the bits of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfhybrid
from tfhybrid import distributed
from tfhybrid.core.meetings import Meeting
from tfhybrid.errors import ConfigError
from tfhybrid.job import current_job
from tfhybrid.ops.meeting_ops import MeetingRef
from tfhybrid.optimizers import dense_step

pytestmark = pytest.mark.usefixtures("job")

SHAPES: list[tuple[tuple[int, ...], tf.DType]] = [
    ((257, 33), tf.float32),
    ((), tf.float32),
    ((0, 4), tf.float32),
    ((5,), tf.float64),
    ((3, 7), tf.bfloat16),
    ((16,), tf.float32),
]


def reduced(way: str, step: int, samples: int, shapes=SHAPES) -> tuple[Any, list[list[Any]]]:
    """Returns what all ranks got together, and what each has brought."""
    random = np.random.default_rng([step, tfhybrid.rank()])
    gradients = [tf.cast(random.normal(size=shape), dtype) for shape, dtype in shapes]
    meeting = Meeting("step", f"of {way}", variables=tuple(str(its) for its in shapes))
    engine = current_job().engine
    engine.meetings[meeting.signature] = meeting

    @tf.function(autograph=False)
    def reduce(gradients: list[tf.Tensor], samples: tf.Tensor) -> dense_step.DenseStep:
        numbers = samples, tf.constant(1.0), tf.constant(False), tf.constant(tfhybrid.rank() == 0)
        mine = dense_step.DenseStep(gradients, *numbers)
        return dense_step.reduce(mine, MeetingRef(engine.number, meeting), way)

    told = reduce(gradients, tf.constant(samples, tf.int64))
    own = [samples, *(gradient.numpy() for gradient in gradients)]
    return told, distributed.allgather_object(own)


def average(brought: list[np.ndarray], samples: list[int]) -> np.ndarray:
    """The average as the hierarchical way has it: weighed, added in the order of ranks, divided."""
    kind = brought[0].dtype
    wide = kind.type if kind in (np.float32, np.float64) else np.float32
    total = np.zeros(brought[0].shape, wide)
    for rank, gradient in enumerate(brought):
        weighed = gradient.astype(wide) * wide(samples[rank])
        total = weighed if rank == 0 else total + weighed
    return (total / wide(max(sum(samples), 1))).astype(kind)


@pytest.mark.world_size
@pytest.mark.parametrize("without_samples", [(), (0,), (0, 1, 2)])
def test_averages_on_a_host_are_those_of_numpy(without_samples) -> None:
    if tfhybrid.size() == 1:
        without_samples = ()  # one rank alone takes its gradients as they are
    for step in range(3):
        mine = 0 if tfhybrid.rank() in without_samples else 1 if tfhybrid.size() == 1 else 7 + step
        told, brought = reduced("hierarchical", step, mine)
        samples = [own[0] for own in brought]
        assert told.samples == sum(samples)
        assert (told.active, told.stopping) == (tfhybrid.size(), 1)
        for place, got in enumerate(told.gradients):
            wanted = average([own[1 + place] for own in brought], samples)
            assert got.dtype == wanted.dtype
            assert got.numpy().tobytes() == wanted.tobytes(), (step, place)


@pytest.mark.world_size
def test_sums_that_grow_and_shrink_and_none_at_all() -> None:
    for size in (1, 100_000, 3, 500_000):
        shapes = [((size,), tf.float32)]
        told, brought = reduced("hierarchical", size, 2 if tfhybrid.size() > 1 else 1, shapes)
        wanted = average([own[1] for own in brought], [own[0] for own in brought])
        assert told.gradients[0].numpy().tobytes() == wanted.tobytes()
    told, _ = reduced("hierarchical", 0, 2, [])
    assert told.gradients == []
    assert told.samples == 2 * tfhybrid.size()


def test_both_ways_agree() -> None:
    """Of two ranks bit for bit, since either order adds the same two numbers."""
    shapes = [its for its in SHAPES if its[1] != tf.bfloat16]  # which Horovod rounds in between
    by_host, _ = reduced("hierarchical", 1, 3 + tfhybrid.rank(), shapes)
    by_horovod, _ = reduced("horovod", 1, 3 + tfhybrid.rank(), shapes)
    assert by_host.samples == by_horovod.samples
    for one, other in zip(by_host.gradients, by_horovod.gradients, strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()


@pytest.mark.world_size
def test_ranks_of_a_host_add_up_in_its_memory(monkeypatch) -> None:
    several = tfhybrid.size() > 1
    assert dense_step.choose_way("auto", "leaders") == ("hierarchical" if several else "horovod")
    assert dense_step.choose_way("auto", "all_ranks") == "horovod"
    assert dense_step.choose_way("hierarchical", "all_ranks") == "hierarchical"
    if tfhybrid.rank() == tfhybrid.size() - 1:  # one host of several may have GPUs
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda *_: ["GPU:0"])
    assert dense_step.choose_way("auto", "leaders") == "horovod"


@pytest.mark.world_size
def test_steps_that_would_wait_for_a_long_cycle_are_warned_of(monkeypatch, caplog) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "20")
    for way in ("auto", "horovod"):
        optimizer = tfhybrid.DistributedOptimizer("sgd", dense=way)
        optimizer.build([tf.Variable(tf.zeros(2))])
        warns = way == "horovod" and tfhybrid.rank() == 0 and tfhybrid.size() > 1
        assert ("HOROVOD_CYCLE_TIME=5" in caplog.text) is warns


def test_another_way_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dense must be one of .*Received: 'ring'"):
        tfhybrid.DistributedOptimizer("sgd", dense="ring")
