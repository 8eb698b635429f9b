"""One process against plain Keras: the same model on `keras.layers.Embedding`."""

from __future__ import annotations

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid

pytestmark = pytest.mark.usefixtures("job")

STEPS, VOCABULARY = 50, 64
FEATURES = {"user": 8, "item": 5}
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.5),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adam": lambda: keras.optimizers.Adam(0.005),
}


def samples() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns batches that have every key once.

    Keras's Adam also moves rows that a batch lacks, and for a key that comes twice Keras squares
    both gradients apart where a dense gradient, and tfhybrid, add them up first.
    """
    random = np.random.default_rng(3)
    every = np.tile(np.arange(VOCABULARY), (STEPS, 1))
    keys = {name: random.permuted(every, axis=1).reshape(-1, 1) for name in FEATURES}
    labels = (sum(keys.values()) % 2).astype(np.float32)
    return keys, labels


def model_on(embed) -> keras.Model:
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in FEATURES}
    x = keras.layers.Concatenate()([keras.layers.Flatten()(e) for e in embed(inputs)])
    for units, activation in ((16, "relu"), (1, None)):
        x = keras.layers.Dense(
            units, activation, kernel_initializer=keras.initializers.GlorotUniform(units)
        )(x)
    return keras.Model(inputs, x)


def losses(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> np.ndarray:
    """Trains; returns the loss of each step."""
    means: list[float] = []
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: means.append(logs["loss"])
    )
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    keys, labels = samples()
    model.fit(keys, labels, batch_size=VOCABULARY, shuffle=False, verbose=0, callbacks=[record])
    return np.diff(np.array(means) * np.arange(1, STEPS + 1), prepend=0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_loss_curve_equals_that_of_keras(optimizer) -> None:
    collection = tfhybrid.layers.EmbeddingCollection(
        {name: tfhybrid.TableConfig(dim) for name, dim in FEATURES.items()}
    )
    ours = model_on(lambda inputs: collection(inputs).values())
    plain_layers = {
        name: keras.layers.Embedding(
            VOCABULARY,
            dim,
            embeddings_initializer=keras.initializers.Constant(
                collection.tables[name].lookup(np.arange(VOCABULARY))
            ),
        )
        for name, dim in FEATURES.items()
    }
    plain = model_on(lambda inputs: [plain_layers[name](inputs[name]) for name in FEATURES])

    curve = losses(ours, tfhybrid.DistributedOptimizer(OPTIMIZERS[optimizer]()))
    expected = losses(plain, OPTIMIZERS[optimizer]())
    assert len(curve) == STEPS
    assert min(curve) < curve[0] - 0.005  # it learns
    np.testing.assert_allclose(curve, expected, atol=1e-5, rtol=0)
    for name, layer in plain_layers.items():
        rows = collection.tables[name].lookup(np.arange(VOCABULARY))
        np.testing.assert_allclose(rows, layer.get_weights()[0], atol=1e-5, rtol=0)
