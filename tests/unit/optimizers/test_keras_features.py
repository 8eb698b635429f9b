"""Ways to train with Keras, against the reference; and what would leave tables out, refused."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tests.support.reference import click_model, training
from tfhybrid._keras import IS_KERAS_3
from tfhybrid.errors import UnsupportedError

pytestmark = pytest.mark.usefixtures("job")

STEPS, SAMPLES = 8, 16
LOSS = keras.losses.BinaryCrossentropy(from_logits=True)


def data() -> training.Batch:
    """Returns the samples of all steps, in order."""
    steps = click_model.batches(STEPS, ranks=1, samples=SAMPLES)
    return click_model.concatenate([batch for (batch,) in steps])


def compiled_model(**options) -> keras.Model:
    model = click_model.keras_model()
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.1)), LOSS, **options)
    return model


def fit(model: keras.Model, **options) -> keras.callbacks.History:
    keys, labels = data()
    return model.fit(keys, labels, batch_size=SAMPLES, shuffle=False, verbose=0, **options)


def train_on_batch(model: keras.Model) -> None:
    for ((keys, labels),) in click_model.batches(STEPS, ranks=1, samples=SAMPLES):
        model.train_on_batch(keys, labels)


def loop(model: keras.Model, wrap=lambda step: step) -> None:
    """A custom loop."""

    @wrap
    def step(keys, labels):
        with tf.GradientTape() as tape:
            value = LOSS(labels[:, tf.newaxis], model(keys, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for ((keys, labels),) in click_model.batches(STEPS, ranks=1, samples=SAMPLES):
        step({name: tf.constant(value) for name, value in keys.items()}, tf.constant(labels))


WAYS = {
    "fit": ({}, fit),
    "steps_per_execution": ({"steps_per_execution": 4}, fit),
    "run_eagerly": ({"run_eagerly": True}, fit),
    "train_on_batch": ({}, train_on_batch),
    "eager_loop": ({}, loop),
    "compiled_loop": ({}, lambda model: loop(model, tf.function)),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_training_equals_the_reference(way) -> None:
    options, train = WAYS[way]
    model = compiled_model(**options)
    trainer = click_model.reference(model, training.Adagrad(0.1))
    train(model)
    for ranks in click_model.batches(STEPS, ranks=1, samples=SAMPLES):
        trainer.step(ranks)
    differences = click_model.relative_differences(model, trainer)
    assert max(differences.values()) <= 1e-6, differences
    assert model.optimizer.iterations == STEPS


def test_evaluation_leaves_tables_as_they_are() -> None:
    model = compiled_model()
    fit(model, validation_data=data())
    keys, labels = data()
    tables = click_model.collection(model).tables.values()
    before = [(table.digest(), table.rows, table.version) for table in tables]
    loss = model.evaluate(keys, labels, verbose=0)
    logits = model.predict(keys, verbose=0)
    assert float(LOSS(labels[:, np.newaxis], logits)) == pytest.approx(loss, abs=1e-5)
    assert [(table.digest(), table.rows, table.version) for table in tables] == before


@pytest.fixture
def policy() -> Iterator[None]:
    yield
    keras.mixed_precision.set_global_policy("float32")


def test_mixed_bfloat16_trains_tables_in_float32(policy) -> None:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = compiled_model()
    assert click_model.collection(model).compute_dtype == "bfloat16"
    history = fit(model, epochs=5).history["loss"]
    assert history[-1] < history[0]
    assert click_model.collection(model).tables["user"].lookup([1]).dtype == np.float32


def test_mixed_float16_is_refused(policy) -> None:
    keras.mixed_precision.set_global_policy("mixed_float16")
    with pytest.raises(UnsupportedError, match="mixed_bfloat16"):
        compiled_model()


@needs_keras_3
def test_jit_compile_is_declined_and_trains() -> None:
    with pytest.warns(UserWarning, match="Proceeding with `jit_compile=False`"):
        model = compiled_model(jit_compile=True)
    fit(model)
    assert model.optimizer.iterations == STEPS


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam", "rmsprop"])
def test_a_plain_keras_optimizer_is_refused(optimizer) -> None:
    model = click_model.keras_model()
    model.compile(optimizer, LOSS)
    with pytest.raises(UnsupportedError, match=r"tfhybrid\.DistributedOptimizer\(optimizer\)"):
        fit(model)


def test_early_stopping_works() -> None:
    stop = keras.callbacks.EarlyStopping(monitor="loss", mode="max", patience=1)
    history = fit(compiled_model(), epochs=10, callbacks=[stop])
    assert len(history.epoch) == 2


REFUSED_CALLBACKS = {
    "restore_best_weights": lambda path: keras.callbacks.EarlyStopping(
        monitor="loss", restore_best_weights=True
    ),
    "checkpoint": lambda path: keras.callbacks.ModelCheckpoint(str(path / "model.keras")),
    "checkpoint_weights": lambda path: keras.callbacks.ModelCheckpoint(
        str(path / "model.weights.h5"), save_weights_only=True
    ),
    "backup": lambda path: keras.callbacks.BackupAndRestore(str(path)),
}


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("callback", REFUSED_CALLBACKS)
def test_callbacks_that_would_leave_tables_out_are_refused(callback, eagerly, tmp_path) -> None:
    model = compiled_model(run_eagerly=eagerly)
    with pytest.raises(UnsupportedError, match=r"tfhybrid\.callbacks\.Checkpoint\(directory\)"):
        fit(model, callbacks=[REFUSED_CALLBACKS[callback](tmp_path)])
    assert model.optimizer.iterations == 0  # before the first step
    fit(model)
    steps = int(model.optimizer.iterations)
    callbacks = [tfhybrid.callbacks.MetricAverage(), REFUSED_CALLBACKS[callback](tmp_path)]
    with pytest.raises(UnsupportedError, match=r"tfhybrid\.callbacks\.Checkpoint\(directory\)"):
        fit(model, callbacks=callbacks)
    assert model.optimizer.iterations == steps  # also if the step is traced already


def test_training_keeps_no_variable_of_its_caller_alive() -> None:
    large = np.zeros(8)
    reference = weakref.ref(large)
    loop(compiled_model())
    del large
    gc.collect()
    assert reference() is None


def test_callbacks_of_keras_save_models_without_tables(tmp_path) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    path = tmp_path / "model.weights.h5"
    save = keras.callbacks.ModelCheckpoint(str(path), save_weights_only=True)
    model.fit(
        np.ones((4, 3)),
        np.ones(4),
        callbacks=[tfhybrid.callbacks.MetricAverage(), save],
        verbose=0,
    )
    assert path.exists()


REFUSED_CALLS = {
    "get_weights": lambda model, path: model.get_weights(),
    "export": lambda model, path: model.export(path / "1"),
    "set_weights": lambda model, path: model.set_weights(
        [np.zeros(weight.shape) for weight in model.weights]
    ),
    "save": lambda model, path: model.save(path / "model.keras"),
    "save_weights": lambda model, path: model.save_weights(path / "model.weights.h5"),
    "clone_model": lambda model, path: keras.models.clone_model(model),
}
if IS_KERAS_3:
    REFUSED_CALLS |= {
        "get_state_tree": lambda model, path: model.get_state_tree(value_format="numpy_array"),
        "set_state_tree": lambda model, path: model.set_state_tree(model.get_state_tree()),
    }


@pytest.mark.parametrize("call", REFUSED_CALLS)
def test_calls_that_would_leave_tables_out_are_refused(call, tmp_path) -> None:
    with pytest.raises(UnsupportedError, match=r"tfhybrid\.callbacks\.Checkpoint\(directory\)"):
        REFUSED_CALLS[call](compiled_model(), tmp_path)


def test_a_copy_of_an_optimizer_is_refused() -> None:
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.02, beta_1=0.5))
    with pytest.raises(UnsupportedError, match=r"keras\.optimizers\.Adam\.from_config"):
        type(optimizer).from_config(optimizer.get_config())
    copy = keras.optimizers.Adam.from_config(optimizer.get_config())
    assert tfhybrid.DistributedOptimizer(copy).get_config() == optimizer.get_config()


@needs_keras_3
def test_a_stateless_call_reads_the_tables_as_they_are() -> None:
    model = compiled_model()
    fit(model)
    keys, _ = data()
    stateless, _ = model.stateless_call(
        model.trainable_variables, model.non_trainable_variables, keys
    )
    np.testing.assert_array_equal(stateless, model(keys))


@needs_keras_3
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_what_is_not_of_tables_may_be_quantized() -> None:
    model = compiled_model()
    fit(model)
    keys, _ = data()
    before = np.asarray(model(keys))
    tables = {name: t.digest() for name, t in click_model.collection(model).tables.items()}
    model.quantize("int8")
    np.testing.assert_allclose(model(keys), before, atol=0.05)
    assert tables == {name: t.digest() for name, t in click_model.collection(model).tables.items()}


@needs_keras_3
def test_layers_adapted_after_an_optimizer_was_built_want_a_new_one() -> None:
    model = compiled_model()
    fit(model)
    next(layer for layer in model.layers if isinstance(layer, keras.layers.Dense)).enable_lora(2)
    model.compile(tfhybrid.DistributedOptimizer("adam"), LOSS)
    fit(model)


@needs_keras_3
def test_averages_that_would_leave_tables_out_are_refused() -> None:
    with pytest.raises(ValueError, match="use_ema=True"):
        fit(compiled_model(), callbacks=[keras.callbacks.SwapEMAWeights(swap_on_epoch=True)])
