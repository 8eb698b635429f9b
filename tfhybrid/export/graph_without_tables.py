"""Graph of a model without its tables, for processes that read the rows from elsewhere.

It is a SavedModel of built-in operations with two signatures. "keys" takes the model's inputs and
returns the keys of each lookup. "predict" takes the inputs and the embeddings of those keys, and
returns the outputs. `tables.json` has the table of each lookup.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.checkpoint import storage
from tfhybrid.errors import ExportError
from tfhybrid.export.loaded_graph import TABLES
from tfhybrid.export.serving_model import named_outputs, refuse_foreign
from tfhybrid.export.signature import Signature
from tfhybrid.export.versions import local_folder
from tfhybrid.export.vocabularies import vocabularies
from tfhybrid.layers import table_lookup
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.store import Table


def serving_graph(model: keras.Model, path: str | os.PathLike[str], *, inputs: Any = None) -> Path:
    """Writes the graph of a model, for serving processes that read published weights.

    The graph has dense weights, too, which each publication replaces. Write it once, and again when
    the model's structure changes. Only one process may call this.

    Args:
        model: Model, built.
        path: Folder to write, which must not exist. It appears at once, complete.
        inputs: Inputs of a subclassed model; see `saved_model`. Default: `None`, for a functional
            model.

    Returns:
        The folder.

    Raises:
        ConfigError: The model is not built, its inputs are unknown, or `path` is an address.
        ExportError: Stock TensorFlow cannot run the model, or the folder could not be written.

    Example:

    ```python
    tfhybrid.export.serving_graph(model, "/srv/graphs/ads/1")
    ```
    """
    folder = local_folder(path)
    graph = _Graph(model, Signature(model, inputs))
    try:
        with storage.appearing(folder) as unfinished:
            signatures = {"keys": graph.keys, "predict": graph.predict}
            tf.saved_model.save(graph, str(unfinished), signatures)
            (unfinished / TABLES).write_text(json.dumps(graph.tables))
    except (OSError, tf.errors.OpError, AssertionError) as error:
        raise ExportError(f"'{model.name}' could not be written to {folder}: {error}") from error
    return folder


class _Graph(tf.Module):
    """Root object of a SavedModel: two traced graphs, the dense weights and the vocabularies."""

    def __init__(self, model: keras.Model, signature: Signature) -> None:
        super().__init__()
        lookups: list[tuple[Table, tf.TensorSpec]] = []

        def keys_of(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            keys_of_lookups: list[tf.Tensor] = []

            def lookup(table: Table, keys: tf.Tensor) -> tf.Tensor:
                spec = tf.TensorSpec(keys.shape.concatenate([table.dim]), tf.float32)
                lookups.append((table, spec))
                keys_of_lookups.append(keys)
                rows = tf.zeros(tf.concat([tf.shape(keys), [table.dim]], axis=0))
                rows.set_shape(spec.shape)
                return rows

            with table_lookup.replaced_by(lookup):
                model(signature.pack(inputs), training=False)
            return {f"keys_{i}": keys for i, keys in enumerate(keys_of_lookups)}

        def predict(
            inputs: dict[str, tf.Tensor], embeddings: dict[str, tf.Tensor]
        ) -> dict[str, tf.Tensor]:
            rows = iter(embeddings[f"embeddings_{i}"] for i in range(len(lookups)))
            with table_lookup.replaced_by(lambda _, __: next(rows)):
                return named_outputs(model(signature.pack(inputs), training=False))

        # The traced graphs are kept, not the functions, which saving would trace again.
        self.keys = tf.function(keys_of).get_concrete_function(signature.specs)
        embeddings = {
            f"embeddings_{i}": tf.TensorSpec(spec.shape, tf.float32, f"embeddings_{i}")
            for i, (_, spec) in enumerate(lookups)
        }
        self.predict = tf.function(predict).get_concrete_function(signature.specs, embeddings)
        self.tables = [table.name for table, _ in lookups]
        for graph in (self.keys, self.predict):
            refuse_foreign(model, graph)
        # In the order of online training's publications.
        weights = [*model.trainable_variables, *model.non_trainable_weights]
        self.dense = [_tensor_of(each) for each in weights if _is_dense(each)]
        self.vocabularies = vocabularies(model)


def _is_dense(weight: Any) -> bool:
    """Returns whether a weight is a variable: Keras 2 also lists the vocabularies of layers."""
    return not isinstance(weight, TableProxy) and (
        isinstance(weight, tf.Variable) or hasattr(weight, "value")
    )


def _tensor_of(variable: Any) -> tf.Variable:
    """Returns the TensorFlow variable behind a variable of Keras 2 or 3."""
    return variable if isinstance(variable, tf.Variable) else variable.value
