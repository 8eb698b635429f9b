"""Two towers, as retrieval models of others are written: items are looked up in the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tfhybrid import checkpoint, export
from tfhybrid.layers import Embedding

pytestmark = [pytest.mark.usefixtures("job"), needs_keras_3]

USERS, ITEMS, DIM, BEST = 20, 12, 4, 3
RANDOM = np.random.default_rng(5)
ROWS = {"users": RANDOM.uniform(-1, 1, (USERS, DIM)), "items": RANDOM.uniform(-1, 1, (ITEMS, DIM))}
BATCHES = [
    (RANDOM.integers(0, USERS, size), RANDOM.integers(0, ITEMS, size)) for size in (8, 8, 3, 8)
]


class TwoTowers(keras.Model):
    """A user's vector should score the item that the user chose above the others of the batch."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.users = make(USERS, DIM, name="users")
        self.items = make(ITEMS, DIM, name="items")

    def call(self, users: Any, training: bool = False) -> dict[str, Any]:
        vectors = self.users(users)
        if training:
            return {"vectors": vectors}
        scores = self.items.score(vectors, keras.ops.arange(ITEMS))
        return {"vectors": vectors, "items": keras.ops.top_k(scores, BEST)[1]}

    def compute_loss(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True
    ) -> Any:
        scores = keras.ops.matmul(y_pred["vectors"], keras.ops.transpose(self.items(y)))
        chosen = keras.ops.arange(keras.ops.shape(scores)[0])
        losses = keras.ops.sparse_categorical_crossentropy(chosen, scores, from_logits=True)
        return keras.ops.mean(losses)


def trained() -> TwoTowers:
    model = TwoTowers(Embedding.like_keras)
    for layer, rows in ((model.users, ROWS["users"]), (model.items, ROWS["items"])):
        layer.build()
        layer.table.load(checkpoint.ArrayRows(np.arange(len(rows)), rows.astype(np.float32)))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.05)))
    return model


def test_they_learn_as_with_the_layer_of_keras() -> None:
    reference = TwoTowers(keras.layers.Embedding)
    for name, rows in ROWS.items():
        layer = getattr(reference, name)
        layer.build(())
        layer.set_weights([rows])
    reference.compile(keras.optimizers.SGD(0.5))
    model = trained()
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.5)))
    losses = [[each.train_on_batch(*batch) for batch in BATCHES] for each in (model, reference)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    (items,) = reference.items.get_weights()
    np.testing.assert_allclose(model.items.table.lookup(np.arange(ITEMS)), items, atol=1e-6)


def test_they_recommend_the_same_after_a_checkpoint_and_an_export(tmp_path) -> None:
    model = trained()
    for batch in BATCHES:
        model.train_on_batch(*batch)
    users = np.arange(USERS)
    best = model.predict(users, verbose=0)["items"]
    vectors = model.users.table.lookup(users)
    scores = vectors @ model.items.table.lookup(np.arange(ITEMS)).T
    np.testing.assert_array_equal(best, np.argsort(-scores, axis=1)[:, :BEST])

    spec = tf.TensorSpec([None], tf.int64, name="user")
    folder = export.saved_model(model, tmp_path / "exported", inputs=spec)
    served = tf.saved_model.load(str(folder)).signatures["serving_default"](user=users)
    np.testing.assert_array_equal(served["items"], best)

    checkpoint.save(model, tmp_path / "saved", tfhybrid.data.Position(1, 0))
    tfhybrid.shutdown()
    tfhybrid.init()
    restored = trained()
    restored.predict(users, verbose=0)
    checkpoint.restore(restored, tmp_path / "saved")
    np.testing.assert_array_equal(restored.predict(users, verbose=0)["items"], best)
