"""A layer that could not be built does not keep the names of its tables."""

from __future__ import annotations

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tfhybrid.errors import ConfigError, NameTakenError, TfhybridError

pytestmark = pytest.mark.usefixtures("job")

TABLE = tfhybrid.TableConfig(3)


def embedding(config: tfhybrid.TableConfig = TABLE) -> tfhybrid.layers.Embedding:
    return tfhybrid.layers.Embedding(config, table="item")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: embedding()(keras.Input((1,), name="a")),
        lambda: embedding()(np.array([[0.5]], np.float32)),
        lambda: embedding(tfhybrid.TableConfig(3, combiner="sum"))(np.zeros((1, 1, 1), np.int64)),
        lambda: embedding()(np.array([[1]]), weights=np.array([[1.0]])),
        lambda: tfhybrid.layers.EmbeddingCollection({"item": TABLE, "user": TABLE})(
            {"item": np.array([[1]])}
        ),
        lambda: tfhybrid.layers.EmbeddingCollection({"item": TABLE, "x" * 300: TABLE})(
            {"item": np.array([[1]]), "x" * 300: np.array([[1]])}
        ),
    ],
)
def test_the_layer_can_be_made_again(wrong) -> None:
    with pytest.raises(TfhybridError):
        wrong()
    layer = embedding()
    model = keras.Sequential(
        [keras.Input((1,), dtype="int64"), layer, keras.layers.Flatten(), keras.layers.Dense(1)]
    )
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    model.fit(np.array([[1], [2]]), np.ones((2, 1)), verbose=0)
    assert layer.table.rows == 2
    with pytest.raises(NameTakenError):
        embedding()(np.array([[1]]))


def test_the_layer_itself_can_be_called_again_until_another_has_its_table() -> None:
    first = embedding()
    with pytest.raises(ConfigError):
        first(np.array([[0.5]], np.float32))
    first(np.array([[1]]))
    with pytest.raises(NameTakenError):
        embedding()(np.array([[1]]))

    second = tfhybrid.layers.Embedding(TABLE, table="user")
    with pytest.raises(ConfigError):
        second(np.array([[0.5]], np.float32))
    third = tfhybrid.layers.Embedding(TABLE, table="user")
    third(np.array([[1]]))
    with pytest.raises(NameTakenError, match="another layer has taken over its tables"):
        second(np.array([[1]]))


def test_a_table_of_other_settings_stays_taken() -> None:
    with pytest.raises(ConfigError):
        embedding()(np.array([[0.5]], np.float32))
    with pytest.raises(NameTakenError):
        embedding(tfhybrid.TableConfig(4))(np.array([[1]]))


def test_tables_of_an_ended_job_are_not_taken() -> None:
    with pytest.raises(ConfigError):
        embedding()(np.array([[0.5]], np.float32))
    tfhybrid.shutdown()
    tfhybrid.init()
    layer = embedding()
    assert layer(np.array([[1]])).shape == (1, 1, 3)
