"""What a new user does wrong in the first week, and the sentence that helps.

Elsewhere: another TensorFlow than the ops were built for (test_abi.py), a small /dev/shm
(cli/test_doctor.py, ../integration/test_full_store.py), two jobs of one name and what a killed job
leaves (../integration/test_killed_ranks.py), a host that does not resolve or lacks the package
(../integration/test_doctor.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tfhybrid.errors import ConfigError, NotInitializedError
from tfhybrid.job import rank_devices

KEYS = np.arange(4)
LABELS = np.ones(4)


def said(error: pytest.ExceptionInfo) -> str:
    """Returns what a person reads, without the colours of the terminal."""
    return re.sub(r"\x1b\[\d+m", "", str(error.value))


def two_towers(*, use: tuple[str, ...] = ("user", "item")) -> tuple[keras.Model, dict]:
    configs = dict.fromkeys(["user", "item"], tfhybrid.TableConfig(4))
    layer = tfhybrid.layers.EmbeddingCollection(configs)
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in configs}
    embedded = layer(inputs)
    flat = [keras.layers.Flatten()(embedded[name]) for name in use]
    x = keras.layers.Concatenate()(flat) if len(flat) > 1 else flat[0]
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(tfhybrid.DistributedOptimizer("adam"), "mse")
    return model, layer.tables


@pytest.mark.parametrize(
    "use",
    [
        lambda: tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name="item").build(),
        lambda: tfhybrid.DistributedOptimizer("adam"),
    ],
    ids=["layer", "optimizer"],
)
def test_init_was_forgotten(use: Callable[[], object]) -> None:
    with pytest.raises(NotInitializedError, match=r"^Call tfhybrid\.init\(\) first: it starts"):
        use()


@needs_keras_3
def test_an_optimizer_of_the_other_keras() -> None:
    """With TF_USE_LEGACY_KERAS=1 `tf.keras` is Keras 2, whatever `import keras` is."""
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "import keras, tfhybrid\n"
            "tfhybrid.init()\n"
            "tfhybrid.DistributedOptimizer(keras.optimizers.SGD())",
        ],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    version = metadata.version("tf_keras")
    assert f"needs one of tf.keras.optimizers, here of Keras {version}, or its name" in run.stderr
    assert "Received: keras.src.optimizers.sgd.SGD" in run.stderr


@needs_keras_3
def test_a_model_of_keras_2_is_saved_and_restored(tmp_path) -> None:
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, tfhybrid\n"
            "from tensorflow import keras\n"
            "tfhybrid.init()\n"
            "users = keras.Input((1,), dtype='int64')\n"
            "rows = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name='user')(users)\n"
            "model = keras.Model(users, keras.layers.Dense(1)(rows))\n"
            "model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD()), 'mse')\n"
            "tfhybrid.checkpoint.save(model, sys.argv[1], tfhybrid.data.Position(1, 2))\n"
            "print(tfhybrid.checkpoint.restore(model, sys.argv[1]))",
            str(tmp_path),
        ],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "Position(epoch=1, step=2" in run.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="naming a host needs root")
def test_this_host_does_not_know_its_own_name() -> None:
    """Horovod would die of a signal."""
    script = f"hostname nobody.invalid && {sys.executable} -c 'import tfhybrid; tfhybrid.init()'"
    run = subprocess.run(
        ["unshare", "--uts", "bash", "-c", script], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "add a line `127.0.0.1 NAME` to /etc/hosts. Received: 'nobody.invalid'" in run.stderr


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("keys", [[1.5, 2.0], ["shoe", "hat"]], ids=["floats", "strings"])
def test_keys_are_of_another_type(keys: list[object]) -> None:
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name="item")
    with pytest.raises(ConfigError) as error:
        layer(tf.constant(keys))
    assert (
        "Keys of feature 'item' must be int64 or int32: give its Input dtype='int64', convert "
        in (said(error))
    )
    assert (
        "strings with tfhybrid.data.string_keys, and call keras.ops.cast(keys, 'int64') on what "
        in (said(error))
    )
    assert "layer of your own returns. Received: " in said(error)


@pytest.mark.usefixtures("job")
def test_a_feature_is_missing_in_a_call_and_in_the_data() -> None:
    configs = dict.fromkeys(["user", "item"], tfhybrid.TableConfig(4))
    layer = tfhybrid.layers.EmbeddingCollection(configs, prefix="called_")
    with pytest.raises(ConfigError) as error:
        layer({"user": KEYS})
    wanted = "needs the features ['user', 'item']; ['item'] are missing. Received: ['user']"
    assert wanted in said(error)
    model, tables = two_towers()
    with pytest.raises(ValueError, match='Missing data for input "item"'):
        model.fit({"user": KEYS}, LABELS, verbose=0)
    assert tables["user"].version == 0


@pytest.mark.usefixtures("job")
def test_the_name_of_an_optimizer_is_misspelt() -> None:
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4, optimizer="adagrd"), name="item")
    layer.build()
    with pytest.raises(ConfigError, match=r"one of \['adagrad', .*\]\. Received: 'adagrd'"):
        tfhybrid.DistributedOptimizer("adam").build(layer.trainable_variables)


@pytest.mark.usefixtures("job")
def test_a_model_without_a_table_trains() -> None:
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
    before = model.get_weights()[0]
    model.fit(np.ones((4, 3)), LABELS, verbose=0)
    assert (model.get_weights()[0] != before).all()


@needs_keras_3
@pytest.mark.usefixtures("job")
def test_a_model_without_a_table_is_told_about_xla_where_there_are_gpus(
    caplog, monkeypatch
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda *_: ["GPU:0"])
    tfhybrid.DistributedOptimizer("sgd").build([tf.Variable(1.0)])
    assert "jit_compile=False" in caplog.text


@pytest.mark.usefixtures("job")
def test_gpus_that_tensorflow_does_not_use_are_reported(caplog, monkeypatch) -> None:
    """TensorFlow's own lines about them are hidden."""
    monkeypatch.setattr(rank_devices, "available_gpus", lambda: 8)
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
    rank_devices.assign_devices(1)
    assert "has 8 GPU(s), but TensorFlow uses none: TF_CPP_MIN_LOG_LEVEL=0 shows" in caplog.text


@pytest.mark.usefixtures("job")
def test_a_table_that_nothing_depends_on_gets_no_rows() -> None:
    model, tables = two_towers(use=("user",))
    model.fit({"user": KEYS, "item": KEYS}, LABELS, verbose=0)
    assert (tables["user"].rows, tables["user"].version) == (4, 1)
    assert model.evaluate({"user": KEYS, "item": KEYS}, LABELS, verbose=0) >= 0


@pytest.mark.usefixtures("job")
def test_one_table_name_is_given_twice() -> None:
    tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name="item").build()
    with pytest.raises(tfhybrid.errors.NameTakenError, match=r"'item'.*unique within a job"):
        tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name="item").build()
