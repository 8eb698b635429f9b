"""What a Keras user writes by habit: it works, or the answer says what to write."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tests.support.strict import no_warnings
from tfhybrid._keras import IS_KERAS_3
from tfhybrid.errors import ConfigError, NameTakenError, UnsupportedError
from tfhybrid.layers import Embedding, EmbeddingCollection

pytestmark = pytest.mark.usefixtures("job")

CONFIG = tfhybrid.TableConfig(4)
KEYS = np.arange(8)[:, np.newaxis]
LABELS = np.ones((8, 1), np.float32)


def test_a_table_may_have_the_name_of_an_input() -> None:
    users = keras.Input((1,), dtype="int64", name="user")
    layer = Embedding(CONFIG, table="user")
    model = keras.Model(users, keras.layers.Flatten()(layer(users)))
    assert layer.table.name == "user"
    assert layer.name != "user"
    np.testing.assert_array_equal(model(KEYS), layer.table.lookup(KEYS[:, 0]))


def test_layer_and_table_have_names_of_their_own() -> None:
    layer = Embedding(CONFIG, name="embedded", table="item")
    layer.build((None, 1))
    assert (layer.name, layer.table.name) == ("embedded", "item")


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: Embedding(1000, 16), r"Embedding\(tfhybrid.TableConfig\(dim=16\), table='user'\)"),
        (lambda: Embedding(16, name="user"), r"TableConfig\(dim=16\).*Received: 16"),
        (lambda: Embedding(CONFIG, 16, name="user"), r"TableConfig\(dim=16\)"),
        (
            lambda: Embedding(CONFIG, name="user", mask_zero=True),
            r"mask_zero: padded=True, mask_key=0 masks key 0",
        ),
        (
            lambda: Embedding(CONFIG, name="user", input_dim=9, output_dim=4),
            r"input_dim: there is no size.*output_dim: TableConfig.*: input_dim, output_dim",
        ),
        (lambda: Embedding(CONFIG), r"needs a name for its table"),
        (
            lambda: tfhybrid.TableConfig(4, optimizer=keras.optimizers.Adagrad()),
            r"tfhybrid\.optimizers\.Adagrad\(\.\.\.\)",
        ),
    ],
)
def test_spellings_of_keras_are_answered(make, wanted) -> None:
    with pytest.raises(ConfigError, match=wanted):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Embedding(CONFIG, name="user", padded=True),
        lambda: Embedding.like_keras(9, 4, mask_zero=True),
    ],
)
def test_only_keras_3_has_padded_lists(make) -> None:
    refused = pytest.raises(UnsupportedError, match=r"needs Keras 3.*Received: Keras 2")
    with contextlib.nullcontext() if IS_KERAS_3 else refused:
        assert make().compute_mask(np.array([[1, 2]])) is not None


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = EmbeddingCollection({"user": CONFIG, "item": CONFIG})
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        embedded = self.embedding(inputs)
        return self.dense(embedded["user"][:, 0] + embedded["item"][:, 0])


@needs_keras_3
def test_a_subclassed_model_trains_without_a_warning() -> None:
    model = Subclassed()
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    with no_warnings():
        model.fit({"user": KEYS, "item": KEYS}, LABELS, verbose=0)
    tables = model.embedding.tables
    assert {name: table.rows for name, table in tables.items()} == {"user": 8, "item": 8}
    assert len(model.trainable_variables) == 4


def test_a_table_says_what_it_is() -> None:
    layer = Embedding(CONFIG, name="item")
    layer.build((None, 1))
    assert repr(layer.table) == "<Table 'item': dim=4, rows=0, version=0>"


def test_a_notebook_is_told_how_to_build_a_model_again() -> None:
    Embedding(CONFIG, name="item").build((None, 1))
    with pytest.raises(NameTakenError, match=r"tfhybrid\.shutdown\(\) and tfhybrid\.init\(\)"):
        Embedding(CONFIG, name="item").build((None, 1))
    tfhybrid.shutdown()
    tfhybrid.init()
    Embedding(CONFIG, name="item").build((None, 1))
