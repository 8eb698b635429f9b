"""Prediction of a model as one graph of built-in operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.errors import ConfigError, ExportError
from tfhybrid.export.stock_table import StockTable
from tfhybrid.layers import table_lookup
from tfhybrid.store import Table

# Operations that need tfhybrid or Horovod.
_FOREIGN = ("Tfhybrid", "Horovod")

_SHORT_FLOATS = (tf.bfloat16, tf.float16)


class Signature:
    """Inputs of a model, by the names that requests use.

    Args:
        model: Model, built. A functional or sequential model defines its inputs itself.
        inputs: Inputs of any other model: one `tf.TensorSpec`, or a dict or a list of them, each
            with a name unless it is in a dict. Default: `None`, the model's own.

    Attributes:
        specs: Specifications of the tensors in a request, by name. A ragged or sparse input has
            several.

    Raises:
        ConfigError: The model is not built, its inputs are unknown, or they lack different names.
    """

    def __init__(self, model: keras.Model, inputs: Any = None) -> None:
        if not model.built:
            raise ConfigError(
                f"A model must be built before it is exported: call '{model.name}' once."
            )
        if inputs is None:
            inputs = _inputs_of(model)
        self._structure = inputs
        if isinstance(inputs, Mapping):
            named = dict(inputs)
        else:
            named = {leaf.name: leaf for leaf in tf.nest.flatten(inputs)}
        if None in named or len(named) < len(tf.nest.flatten(inputs)):
            raise ConfigError(f"Every input must have a different name. Received: {inputs}")
        self._leaves = named
        self.specs = {
            spec.name: spec for name, leaf in named.items() for spec in _specs_of(name, leaf)
        }

    def pack(self, named: Mapping[str, tf.Tensor]) -> Any:
        """Returns inputs in the structure that the model expects.

        Args:
            named: Tensors of a request, by the names of `specs`.
        """
        leaves = {name: _as_leaf(name, leaf, named) for name, leaf in self._leaves.items()}
        if isinstance(self._structure, Mapping):
            return leaves
        return tf.nest.pack_sequence_as(self._structure, list(leaves.values()))


def _specs_of(name: str, leaf: Any) -> list[tf.TensorSpec]:
    """Returns the dense tensors that represent an input in a request."""
    if _is(leaf, "ragged"):
        return [
            tf.TensorSpec((None,), leaf.dtype, name),
            tf.TensorSpec((None,), tf.int64, f"{name}_row_splits"),
        ]
    if _is(leaf, "sparse"):
        return [
            tf.TensorSpec((None,), leaf.dtype, name),
            tf.TensorSpec((None, 2), tf.int64, f"{name}_indices"),
            tf.TensorSpec((2,), tf.int64, f"{name}_dense_shape"),
        ]
    return [tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype, name)]


def _as_leaf(name: str, leaf: Any, named: Mapping[str, tf.Tensor]) -> Any:
    """Builds an input of the model from the tensors of a request."""
    if _is(leaf, "ragged"):
        return tf.RaggedTensor.from_row_splits(named[name], named[f"{name}_row_splits"])
    if _is(leaf, "sparse"):
        indices, shape = named[f"{name}_indices"], named[f"{name}_dense_shape"]
        return tf.SparseTensor(indices, named[name], shape)
    return named[name]


def _is(leaf: Any, kind: str) -> bool:
    """Returns whether an input, a Keras tensor or a specification, is of a kind.

    Args:
        leaf: Input of a model.
        kind: Kind of tensor, `"ragged"` or `"sparse"`.
    """
    specs = {"ragged": tf.RaggedTensorSpec, "sparse": tf.SparseTensorSpec}
    # A Keras 2 tensor has a specification; a Keras 3 tensor has the attributes itself.
    spec = getattr(leaf, "type_spec", leaf)
    return isinstance(spec, specs[kind]) or bool(getattr(leaf, kind, False))


class ServingModel(tf.Module):
    """Object to save: the graph of a prediction, its dense variables and its tables.

    Args:
        model: Trained model.
        tables: Copies of the model's tables, by name.
        signature: Inputs of the graph.

    Attributes:
        prediction: Traced graph, from inputs by name to outputs by name.

    Raises:
        ExportError: The graph has operations that stock TensorFlow lacks.
    """

    def __init__(
        self, model: keras.Model, tables: Mapping[str, StockTable], signature: Signature
    ) -> None:
        super().__init__()
        self.tables = dict(tables)

        def serve(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return named_outputs(model(signature.pack(inputs), training=False))

        def lookup(table: Table, keys: tf.Tensor) -> tf.Tensor:
            return tables[table.name].lookup(keys)

        with table_lookup.replaced_by(lookup):
            # The traced graph is kept, not the function, which saving would trace again.
            self.prediction = tf.function(serve).get_concrete_function(signature.specs)
        refuse_foreign(model, self.prediction)
        of_tables = {id(variable) for variable in self.variables}
        captured = sorted(self.prediction.graph.variables, key=lambda variable: variable.name)
        self.dense = [variable for variable in captured if id(variable) not in of_tables]
        self.vocabularies = list(vocabularies(model))


def _inputs_of(model: keras.Model) -> Any:
    try:
        return model.input
    except (AttributeError, ValueError):
        raise ConfigError(
            f"'{model.name}' does not define its inputs, as a functional model does: pass them, "
            'such as inputs={"user": tf.TensorSpec([None, 1], tf.int64)}.'
        ) from None


def named_outputs(outputs: Any) -> dict[str, tf.Tensor]:
    """Returns outputs by name, with the names of `keras.Model.export`.

    16-bit floats are widened to float32, because JSON does not have them.

    Args:
        outputs: Output of a model: a tensor, or a dict or a nest of tensors.
    """
    if isinstance(outputs, Mapping):
        named = dict(outputs)
    else:
        named = {f"output_{i}": output for i, output in enumerate(tf.nest.flatten(outputs))}
    return {
        name: tf.cast(output, tf.float32) if output.dtype in _SHORT_FLOATS else output
        for name, output in named.items()
    }


def vocabularies(layer: keras.layers.Layer) -> Iterator[tf.lookup.StaticHashTable]:
    """Yields the lookup tables in a layer and in the layers inside it.

    Layers like `keras.layers.StringLookup` hold them. They are not variables.
    """
    yield from (x for x in vars(layer).values() if isinstance(x, tf.lookup.StaticHashTable))
    for inner in getattr(layer, "layers", ()):
        yield from vocabularies(inner)


def refuse_foreign(model: keras.Model, graph: Any) -> None:
    """Checks that stock TensorFlow can run a graph.

    Args:
        model: Model of the graph, for the error.
        graph: Concrete function.

    Raises:
        ExportError: The graph has operations of tfhybrid or Horovod.
    """
    definition = graph.graph.as_graph_def()
    nodes = [*definition.node]
    for function in definition.library.function:
        nodes += function.node_def
    foreign = sorted({node.op for node in nodes if node.op.startswith(_FOREIGN)})
    if foreign:
        raise ExportError(
            f"'{model.name}' contains the operations {foreign}, which stock TensorFlow lacks. A "
            "call() or layer that is decorated with tf.function was traced in training and is not "
            "traced again: remove the decorator"
        )
