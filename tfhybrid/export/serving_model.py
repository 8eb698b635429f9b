"""Prediction of a model as one graph of built-in operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.errors import ExportError
from tfhybrid.export.signature import Signature
from tfhybrid.export.stock_table import StockTable
from tfhybrid.export.vocabularies import vocabularies
from tfhybrid.layers import table_lookup
from tfhybrid.store import Table

# Operations that need tfhybrid or Horovod.
_FOREIGN = ("Tfhybrid", "Horovod")

_SHORT_FLOATS = (tf.bfloat16, tf.float16)


class ServingModel(tf.Module):
    """Root object of a SavedModel: a model's prediction graph with its variables and tables.

    Constructing it traces the graph. It shares the dense variables with the model.

    Args:
        model: Trained model.
        tables: Copies of all tables of the model, by name.
        signature: Inputs of the graph.

    Attributes:
        prediction: Traced graph: takes a dictionary of inputs by name, and returns one of outputs
            by name.

    Raises:
        ExportError: The graph has operations that stock TensorFlow lacks.
        KeyError: The model reads a table that is not in `tables`.
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
        self.vocabularies = vocabularies(model)


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
