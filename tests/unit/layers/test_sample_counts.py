"""The number of samples that a gradient carries: that of the batch, whatever lists have."""

from __future__ import annotations

import pytest
import tensorflow as tf

import tfhybrid

pytestmark = pytest.mark.usefixtures("job")

LISTS = tf.ragged.constant([[1, 2, 3], [], [3, -1]], tf.int64)
ONE = tf.constant([[7], [8], [9]], tf.int64)


def slices_of(layer, inputs, *, compiled: bool) -> list[tf.IndexedSlices]:
    def gradients() -> list[tf.IndexedSlices]:
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(layer(inputs), expand_composites=True)
            loss = sum(tf.reduce_sum(output) for output in outputs if output.dtype == tf.float32)
        return tape.gradient(loss, layer.trainable_variables)

    return (tf.function(gradients) if compiled else gradients)()


def sums_of(slices: tf.IndexedSlices) -> dict[int, float]:
    sums = slices.values.numpy()[:, 0].tolist()
    return dict(zip(slices.indices.numpy().tolist(), sums, strict=True))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("gather_on", ["host", "device"])
@pytest.mark.parametrize("lists", [LISTS, LISTS[:0], LISTS[1:2]], ids=["lists", "none", "empty"])
def test_ragged_lists_count_as_their_rows(lists, gather_on, *, compiled: bool) -> None:
    config = tfhybrid.TableConfig(4, gather_on=gather_on)
    layer = tfhybrid.layers.Embedding(config, table="item")
    (slices,) = slices_of(layer, lists, compiled=compiled)
    assert int(slices.dense_shape[0]) == lists.nrows()
    keys = lists.flat_values.numpy().tolist()
    assert sums_of(slices) == {key: float(keys.count(key)) for key in keys}


@pytest.mark.parametrize("order", [("lists", "one"), ("one", "lists")])
@pytest.mark.parametrize("shared", [{}, {"both": ["lists", "one"]}], ids=["apart", "shared"])
def test_features_of_every_kind_count_the_same(order, shared) -> None:
    config = tfhybrid.TableConfig(4)
    layer = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(order, config), shared=shared)
    gradients = slices_of(layer, {"lists": LISTS, "one": ONE}, compiled=True)
    assert [int(slices.dense_shape[0]) for slices in gradients] == [3] * len(gradients)
    sums: dict[int, float] = {}
    for slices in gradients:
        sums |= sums_of(slices)
    assert sums == {1: 1.0, 2: 1.0, 3: 2.0, -1: 1.0, 7: 1.0, 8: 1.0, 9: 1.0}
