from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tfhybrid
from tfhybrid import distributed
from tfhybrid.core import native
from tfhybrid.errors import ConfigError, NotInitializedError
from tfhybrid.job import current_job, row_links
from tfhybrid.store import Table

pytestmark = pytest.mark.usefixtures("job")

FOUR = tfhybrid.TableConfig(4)


def files_of(job: str) -> list[Path]:
    return list(Path(os.environ.get("TFHYBRID_SHM_DIR", "/dev/shm")).glob(f"*{job}*"))


@pytest.fixture
def name() -> str:
    """A job's name that no other process uses."""
    return f"unit-{os.getpid()}"


def restart(job: str | None = None, seed: int = 0) -> None:
    tfhybrid.shutdown()
    tfhybrid.init(job, seed=seed)


def test_a_second_init_with_the_same_arguments_does_nothing(name) -> None:
    restart(name, seed=3)
    job = current_job()
    tfhybrid.init(seed=3)
    tfhybrid.init(name, seed=3)
    assert current_job() is job


@pytest.mark.parametrize("arguments", [{"job": "other"}, {"seed": 4}, {"devices_per_rank": 2}])
def test_a_second_init_with_other_arguments_is_refused(arguments, name) -> None:
    restart(name, seed=3)
    with pytest.raises(ConfigError, match=f"already runs job '{name}' with seed 3"):
        tfhybrid.init(**{"job": name, "seed": 3} | arguments)


@pytest.mark.parametrize("number", [0, -1, 1.0, True, "2"])
def test_a_number_of_devices_that_cannot_be_is_refused(number) -> None:
    tfhybrid.shutdown()
    with pytest.raises(ConfigError, match=r"1 or more\. Received: devices_per_rank="):
        tfhybrid.init(devices_per_rank=number)


def test_several_devices_come_before_tensorflow_is_used() -> None:
    tfhybrid.shutdown()
    tf.constant(1) + 1
    with pytest.raises(
        ConfigError, match=r"devices_per_rank=2\) before TensorFlow is used\. Received: "
    ):
        tfhybrid.init(devices_per_rank=2)


def test_too_few_gpus_are_named(monkeypatch) -> None:
    tfhybrid.shutdown()
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU:0"])
    with pytest.raises(ConfigError, match=r"1 ranks of 2 GPUs each need 2 GPUs on .*Received: 1"):
        tfhybrid.init(devices_per_rank=2)


@pytest.mark.parametrize("job", ["", "a/b", "a b", "x" * 65, "näme"])
def test_a_name_that_cannot_be_is_refused(job) -> None:
    tfhybrid.shutdown()
    with pytest.raises(ConfigError, match="Received"):
        tfhybrid.init(job)
    with pytest.raises(NotInitializedError):
        current_job()


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "0"])
def test_a_seed_that_cannot_be_is_refused(seed) -> None:
    tfhybrid.shutdown()
    with pytest.raises(ConfigError, match=r"from 0 to 2\^64 - 1. Received: seed="):
        tfhybrid.init(seed=seed)


def test_shutdown_removes_the_store_and_init_starts_a_fresh_one(name) -> None:
    restart(name)
    table = Table("item", FOUR)
    table.set_optimizer(tfhybrid.optimizers.SGD().native(), (0, table.dim))
    ones = np.ones((1, 4), np.float32)
    table.writer.write_rows(tfhybrid.store.RowBlock(np.array([7]), ones, None))
    assert files_of(name)
    tfhybrid.shutdown()
    assert not files_of(name)
    tfhybrid.init(name)
    assert Table("item", FOUR).stats().rows == 0


def test_a_start_that_fails_leaves_no_store(name, monkeypatch) -> None:
    def no_descriptors(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    tfhybrid.shutdown()
    with monkeypatch.context() as patch:
        patch.setattr(row_links, "start", no_descriptors)  # on a host whose leader cannot listen
        with pytest.raises(OSError, match="Too many open files"):
            tfhybrid.init(name)
    assert not files_of(name)
    tfhybrid.init(name)


def test_a_model_that_outlives_its_job_holds_none_of_its_tables(name) -> None:
    """A mailbox stays mapped until the next job's first update."""
    restart(name)
    layer = tfhybrid.layers.Embedding(FOUR, name="item")
    optimizer = tfhybrid.DistributedOptimizer("sgd")

    @tf.function
    def step(keys: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(keys))
        variables = layer.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for _ in range(3):
        step(tf.range(1000, dtype=tf.int64))
    assert layer.table.lookup([7]).shape == (1, 4)
    assert f"{name}/item." in mapped_files()
    tfhybrid.shutdown()
    assert f"{name}/item." not in mapped_files()


def mapped_files() -> str:
    return Path("/proc/self/maps").read_text()


def test_shutdown_twice_does_nothing() -> None:
    tfhybrid.shutdown()
    tfhybrid.shutdown()
    with pytest.raises(NotInitializedError, match=r"tfhybrid\.init\(\)"):
        current_job()


def test_the_store_is_kept_where_the_environment_says(name, shm_directory, monkeypatch) -> None:
    monkeypatch.setenv("TFHYBRID_SHM_DIR", str(shm_directory))
    restart(name)
    Table("item", FOUR)
    assert list(shm_directory.iterdir())
    tfhybrid.shutdown()


def test_initial_values_depend_on_seed_and_table() -> None:
    keys = np.arange(3)
    first = [Table(table, FOUR).lookup(keys) for table in ("user", "item")]
    restart()
    assert np.array_equal(Table("user", FOUR).lookup(keys), first[0])
    restart(seed=1)
    other = Table("user", FOUR).lookup(keys)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other)


def test_a_job_without_horovodrun_has_one_rank() -> None:
    numbers = (tfhybrid.rank(), tfhybrid.size(), tfhybrid.local_rank(), tfhybrid.local_size())
    assert numbers == (0, 1, 0, 1)
    assert (tfhybrid.cross_rank(), tfhybrid.cross_size()) == (0, 1)
    assert current_job().is_leader
    assert tfhybrid.devices() == ("CPU:0",)
    assert native.available_bytes("/dev/shm") > 0


def test_gpus_that_horovod_cannot_use_are_warned_of(monkeypatch, caplog) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU:0"])
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *_: None)
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda *_: None)
    restart()
    assert "TensorFlow uses 1 GPU(s), but this Horovod was not built for GPUs" in caplog.text


def test_a_horovod_that_was_not_built_for_tfhybrid_is_named(monkeypatch, caplog) -> None:
    monkeypatch.setattr(distributed, "horovod_version", lambda: "0.27.0")
    restart()
    assert "Horovod: files of version 0.27.0, but pip has installed 0.28.1" in caplog.text
