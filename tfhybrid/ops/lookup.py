"""The lookup op and its gradient.

A gradient tape transports only `tf.IndexedSlices`, and users may change their values. So other
information travels in parts that users do not change:

- The number of samples is the first axis of `dense_shape`. A table has no fixed number of rows,
  and operations that change the values of slices keep their shape.
- The keys of one lookup's gradient are distinct. If the tape has concatenated two gradients, keys
  may repeat. In a graph, distinct keys are an output of the op that numbered them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tfhybrid.errors import UnsupportedError
from tfhybrid.ops._library import OPS


@dataclasses.dataclass(frozen=True)
class TableRef:
    """A table's identification in ops.

    Args:
        engine: Number of the engine in which the table is open.
        name: Name of the table.
        dim: Length of an embedding.
        proxy: Handle of the table's proxy variable, which carries gradients and orders ops.
    """

    engine: int
    name: str
    dim: int
    proxy: tf.Tensor


@dataclasses.dataclass(frozen=True)
class FeatureKeys:
    """The keys of a feature and, with a combiner, their division into bags.

    Args:
        keys: int64 of any shape; for bags `[n]`, concatenated.
        combiner: `"sum"`, `"mean"` or `"sqrtn"`; `""` for an embedding per key.
        splits: int64 `[bags + 1]`: bag b has `keys[splits[b]:splits[b + 1]]`. `None` without a
            combiner.
        weights: Weights of the keys, float32 `[n]`; `None` for 1 each.
        ragged: Original ragged keys, if the embeddings must be ragged too; only without a combiner.
        samples: Number of samples of the batch, int64. `None` (default) if it is the number of
            bags, or without a combiner the first axis of the keys.
    """

    keys: tf.Tensor
    combiner: str = ""
    splits: tf.Tensor | None = None
    weights: tf.Tensor | None = None
    ragged: tf.RaggedTensor | None = None
    samples: tf.Tensor | None = None

    def reshape(self, embeddings: tf.Tensor) -> tf.Tensor | tf.RaggedTensor:
        """Returns embeddings in the original shape of the keys.

        Args:
            embeddings: float32, one row per key.
        """
        return embeddings if self.ragged is None else self.ragged.with_flat_values(embeddings)

    def combine(self, embeddings: tf.Tensor) -> tf.Tensor:
        """Combines the embeddings of each bag with TensorFlow's own ops, as the lookup op does.

        Args:
            embeddings: float32 `keys.shape + [dim]`.

        Returns:
            float32 `[bags, dim]`; without a combiner, `embeddings`.
        """
        if self.splits is None:
            return embeddings
        bag = tf.ragged.row_splits_to_segment_ids(self.splits)
        bags = tf.size(self.splits, tf.int64) - 1
        weights = tf.ones(tf.shape(self.keys)) if self.weights is None else self.weights
        total = tf.math.unsorted_segment_sum(embeddings * weights[:, tf.newaxis], bag, bags)
        if self.combiner == "sum":
            return total
        if self.combiner == "mean":
            divisor = tf.math.unsorted_segment_sum(weights, bag, bags)
        else:
            divisor = tf.sqrt(tf.math.unsorted_segment_sum(tf.square(weights), bag, bags))
        return tf.math.divide_no_nan(total, divisor[:, tf.newaxis])


@dataclasses.dataclass(frozen=True)
class OutputForm:
    """Form in which a layer needs the embeddings of a lookup.

    Args:
        side_by_side: Whether to concatenate the embeddings of a sample into one row of one tensor.
        dtype: Dtype of the embeddings. To a 16-bit dtype they are cast before they go to a device,
            except bags that are combined there.
    """

    side_by_side: bool = False
    dtype: Any = tf.float32


PLAIN_FORM = OutputForm()
"""The form of the op's own outputs: one float32 tensor per feature."""


@dataclasses.dataclass(frozen=True)
class KeyNumbers:
    """Numbers of a lookup's keys: indices into the distinct keys of their table.

    Args:
        numbers: Number of each key, int32 in the shape of the keys; one tensor per feature.
        distinct: Distinct keys, int64 `[n]`; one tensor per table, in order of first use.
    """

    numbers: Sequence[tf.Tensor]
    distinct: Sequence[tf.Tensor]


def lookup(
    tables: Sequence[TableRef],
    features: Sequence[FeatureKeys],
    *,
    side_by_side: bool = False,
    training: bool | None = None,
    collection: int = 0,
) -> list[tf.Tensor]:
    """Reads the embeddings of all features in one op, and combines the embeddings of bags.

    Args:
        tables: Table of each feature; features may share one.
        features: Keys of each feature; with `side_by_side`, `[batch, ...]` or one bag per sample.
        side_by_side: Whether to concatenate the embeddings of a sample into one row of one tensor.
        training: Whether the model trains, so that a key without a row reads its initial value;
            otherwise it reads what its table says (`Table.unseen`). In a graph, the model also
            trains if a gradient of the lookup is computed. `None` (default): in a graph, only
            then; in eager mode, yes.
        collection: Number by which `number_ahead` finds this lookup. Default 0: it does not.

    Returns:
        One tensor per feature: float32 `keys.shape + [dim]`, or `[bags, dim]` with a combiner. With
        `side_by_side`, one tensor `[batch, width]`.

    Raises:
        tf.errors.OpError: When the op runs, a table is not open, rows cannot be fetched, or an
            earlier update failed.
    """
    features, given = counted(features), len(features)
    tables = [tables[0]] * (len(features) - given) + list(tables)
    outputs = OPS.tfhybrid_lookup(
        proxies=[table.proxy for table in tables],
        keys=[feature.keys for feature in features],
        splits=[feature.splits for feature in features if feature.splits is not None],
        weights=[feature.weights for feature in features if feature.weights is not None],
        engine=tables[0].engine,
        tables=[table.name for table in tables],
        dims=[table.dim for table in tables],
        combiners=[feature.combiner for feature in features],
        weighted=[feature.weights is not None for feature in features],
        side_by_side=side_by_side,
        reading=reading_of(training),
        collection=collection,
        M=1 if side_by_side else len(features),
        T=len({table.name for table in tables}),
    )
    return list(outputs.embeddings)[len(features) - given :]


def cast_on_host(embeddings: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Returns embeddings in the dtype in which the model computes.

    To a 16-bit dtype they are cast on the host, and their gradients are cast back there, so a
    device receives and returns half the bytes. The values are those of `tf.cast`.

    Args:
        embeddings: float32, of a lookup on the host.
        dtype: Floating dtype.
    """
    if tf.as_dtype(dtype).size >= embeddings.dtype.size:
        return tf.cast(embeddings, dtype)

    @tf.custom_gradient
    def narrowed(wide: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        with tf.device("CPU:0"):
            return tf.cast(wide, dtype), widened_on_host

    return narrowed(embeddings)


def widened_on_host(gradient: tf.Tensor) -> tf.Tensor:
    """Returns a gradient of embeddings as float32; a 16-bit one is cast on the host.

    Args:
        gradient: Gradient in the dtype in which the model computes.
    """
    if gradient.dtype.size >= tf.float32.size:
        return tf.cast(gradient, tf.float32)
    with tf.device("CPU:0"):
        return tf.cast(gradient, tf.float32)


def number_ahead(collection: int, features: Sequence[FeatureKeys], batches: int) -> tf.Operation:
    """Numbers the keys of a batch and finds their rows, before a lookup that has the same keys.

    Does nothing before the first lookup of the collection that trains.

    Args:
        collection: Number of the lookup, from 1.
        features: Keys of each feature, in the order in which the lookup has them.
        batches: Maximum number of batches that are kept for lookups; the oldest is dropped.

    Returns:
        The operation, to be made a control dependency of what the batch becomes.
    """
    keys = [feature.keys for feature in counted(features)]
    return OPS.tfhybrid_number_ahead(keys=keys, collection=collection, batches=batches)


def counted(features: Sequence[FeatureKeys]) -> Sequence[FeatureKeys]:
    """Returns the features, after one without keys if the first one tells its samples.

    The gradient of the lookup op sees nothing but its inputs, and counts the samples of the first.

    Args:
        features: Keys of each feature of a lookup.
    """
    samples = features[0].samples
    if samples is None:
        return features
    shape = tf.stack([samples, tf.constant(0, tf.int64)])
    return [FeatureKeys(tf.zeros(shape, tf.int64)), *features]


def reading_of(training: bool | None) -> str:
    """Returns the attribute `reading` of a lookup.

    Args:
        training: Whether the model trains; see `lookup`.
    """
    if training:
        return "training"
    # Eager mode cannot see a gradient. In a graph, rows that are trained must be those that were
    # read, also in a layer that is called with `training=False` inside a model that trains.
    return "outside" if training is False and tf.executing_eagerly() else "by_gradient"


@tf.RegisterGradient("TfhybridLookup")
def _lookup_gradient(op: Any, *gradients: tf.Tensor) -> list[tf.IndexedSlices | None]:
    """Returns slices as `tf.nn.embedding_lookup` does, but with the gradients of a key summed."""
    refuse_loops(name.decode() for name in op.get_attr("tables"))
    count = len(op.get_attr("dims"))
    combiners = [combiner.decode() for combiner in op.get_attr("combiners")]
    bags = len([combiner for combiner in combiners if combiner])
    splits = iter(op.inputs[2 * count : 2 * count + bags])
    weights = iter(op.inputs[2 * count + bags :])
    features = [
        FeatureKeys(
            keys,
            combiner,
            next(splits) if combiner else None,
            next(weights) if is_weighted else None,
        )
        for keys, combiner, is_weighted in zip(
            op.inputs[count : 2 * count], combiners, op.get_attr("weighted"), strict=True
        )
    ]
    tables = [
        TableRef(op.get_attr("engine"), name.decode(), dim, proxy)
        for name, dim, proxy in zip(
            op.get_attr("tables"), op.get_attr("dims"), op.inputs[:count], strict=True
        )
    ]
    side_by_side = op.get_attr("side_by_side")
    embeddings = 1 if side_by_side else count
    by_number = KeyNumbers(
        op.outputs[embeddings : embeddings + count], op.outputs[embeddings + count :]
    )
    slices = gradients_of_tables(
        tables, features, by_number, gradients[:embeddings], side_by_side=side_by_side
    )
    return slices + [None] * (len(op.inputs) - count)


def refuse_loops(tables: Iterable[str]) -> None:
    """Refuses the gradient of a lookup in a loop of TensorFlow, if the tape is outside of the loop.

    TensorFlow adds up the gradients of a loop's iterations in a dense tensor of the variable's
    shape, which a table does not have.

    Args:
        tables: Names of the tables that are looked up.

    Raises:
        UnsupportedError: This is the gradient of a loop.
    """
    graph: Any = tf.compat.v1.get_default_graph()
    while graph is not None:
        if "WhileBodyGrad" in type(graph).__name__:
            raise UnsupportedError(
                "A lookup in a loop of TensorFlow (tf.while_loop, tf.map_fn, tf.scan, "
                "tf.vectorized_map, `for` over a tensor, keras.layers.RNN) has no gradient. Look "
                "up the keys of all iterations before the loop, and let the loop read the "
                f"embeddings. Received: a lookup of {sorted(set(tables))}"
            )
        graph = getattr(graph, "outer_graph", None)


def gradients_of_tables(
    tables: Sequence[TableRef],
    features: Sequence[FeatureKeys],
    by_number: KeyNumbers,
    gradients: Sequence[tf.Tensor],
    *,
    side_by_side: bool = False,
) -> list[tf.IndexedSlices | None]:
    """Returns the gradient of each feature's proxy, from the gradients of a lookup's embeddings.

    A proxy is the variable that stands for a table in Keras. Of the features that share a table,
    the first one gets the gradient of all; the others get `None`.

    Args:
        tables: Table of each feature.
        features: Keys of each feature.
        by_number: Numbers of these keys.
        gradients: Gradients of the results of `lookup`, in the same order and shapes.
        side_by_side: Whether the lookup concatenated the embeddings into one tensor.
    """
    firsts: dict[str, int] = {}
    for position, table in enumerate(tables):
        firsts.setdefault(table.name, position)
    names = list(firsts)
    sums = OPS.tfhybrid_sum_gradients(
        numbers=list(by_number.numbers),
        distinct=list(by_number.distinct),
        gradients=list(gradients),
        splits=[feature.splits for feature in features if feature.splits is not None],
        weights=[feature.weights for feature in features if feature.weights is not None],
        combiners=[feature.combiner for feature in features],
        weighted=[feature.weights is not None for feature in features],
        engine=tables[0].engine,
        tables=names,
        dims=[table.dim for table in tables],
        table_of=[names.index(table.name) for table in tables],
        side_by_side=side_by_side,
    )
    slices: list[tf.IndexedSlices | None] = [None] * len(tables)
    with tf.device("CPU:0"):  # keys are there
        samples = _samples(features[0])
        for first, keys, values in zip(firsts.values(), by_number.distinct, sums, strict=True):
            shape = tf.stack([samples, tf.constant(tables[first].dim, tf.int64)])
            slices[first] = tf.IndexedSlices(values, _in_this_graph(keys), shape)
    return slices


def _in_this_graph(keys: tf.Tensor) -> tf.Tensor:
    """Returns keys as a tensor of the current graph.

    The gradient of a `tf.function` that is called outside of a graph is a graph of its own, which
    cannot return a tensor of another.
    """
    if tf.executing_eagerly() or keys.graph is tf.compat.v1.get_default_graph():
        return keys
    return tf.identity(keys)


def _samples(feature: FeatureKeys) -> tf.Tensor:
    """Returns the number of samples in the batch of a feature, int64."""
    if feature.samples is not None:
        return feature.samples
    if feature.splits is not None:
        return tf.size(feature.splits, tf.int64) - 1
    keys = feature.keys
    return tf.size(keys, tf.int64) if keys.shape.rank == 0 else tf.shape(keys, tf.int64)[0]


def samples_of(slices: tf.IndexedSlices) -> tf.Tensor | None:
    """Returns the number of samples of a lookup's gradient, int64; `None` if it is unknown.

    Args:
        slices: Gradient of a table's proxy variable.
    """
    if slices.dense_shape is None:
        return None
    with tf.device("CPU:0"):
        return tf.cast(slices.dense_shape[0], tf.int64)


def has_distinct_keys(slices: tf.IndexedSlices) -> bool:
    """Returns whether the keys of a gradient are known to be distinct.

    Args:
        slices: Gradient of a table's proxy variable.
    """
    made_by = getattr(slices.indices, "op", None)  # an eager tensor has none, even inside a graph
    return made_by is not None and made_by.type in {"TfhybridLookup", "TfhybridDistinctRows"}
