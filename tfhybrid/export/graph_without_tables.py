"""The graph of a model without its tables: for processes that have the rows from elsewhere.

It is a SavedModel of built-in operations with two signatures. "keys" takes the model's inputs and
returns, of each lookup, the keys. "predict" takes the inputs and the embeddings of those keys, and
returns the outputs. `tables.json` says which table each lookup reads.
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
from tfhybrid.export.serving_model import Signature, named_outputs, refuse_foreign, vocabularies
from tfhybrid.layers import TableProxy, table_lookup
from tfhybrid.store import Table


def serving_graph(model: keras.Model, path: str | os.PathLike[str], *, inputs: Any = None) -> Path:
    """Writes what a serving process needs of a model beside its published weights.

    It holds dense weights, too, which publications replace. Write it once, and again when the
    model is built otherwise. One process calls it.

    Args:
        model: Built.
        path: The folder, which must not exist.
        inputs: As of `saved_model`.

    Returns:
        The folder.

    Raises:
        ConfigError: The model's inputs are not known.
        ExportError: Stock TensorFlow cannot run the model, or the folder could not be written.

    Example:

    ```python
    tfhybrid.export.serving_graph(model, "/srv/graphs/ads/1")
    ```
    """
    folder = Path(path)
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
    """What is saved."""

    def __init__(self, model: keras.Model, signature: Signature) -> None:
        super().__init__()
        lookups: list[tuple[Table, tf.TensorSpec]] = []

        def keys_of(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            found: list[tf.Tensor] = []

            def lookup(table: Table, keys: tf.Tensor) -> tf.Tensor:
                spec = tf.TensorSpec(keys.shape.concatenate([table.dim]), tf.float32)
                lookups.append((table, spec))
                found.append(keys)
                rows = tf.zeros(tf.concat([tf.shape(keys), [table.dim]], axis=0))
                rows.set_shape(spec.shape)
                return rows

            with table_lookup.replaced_by(lookup):
                model(signature.pack(inputs), training=False)
            return {f"keys_{i}": keys for i, keys in enumerate(found)}

        def predict(
            inputs: dict[str, tf.Tensor], embeddings: dict[str, tf.Tensor]
        ) -> dict[str, tf.Tensor]:
            rows = iter(embeddings[f"embeddings_{i}"] for i in range(len(lookups)))
            with table_lookup.replaced_by(lambda _, __: next(rows)):
                return named_outputs(model(signature.pack(inputs), training=False))

        # The traced graphs are kept, not the functions: saving would trace those once more.
        self.keys = tf.function(keys_of).get_concrete_function(signature.specs)
        embeddings = {
            f"embeddings_{i}": tf.TensorSpec(spec.shape, tf.float32, f"embeddings_{i}")
            for i, (_, spec) in enumerate(lookups)
        }
        self.predict = tf.function(predict).get_concrete_function(signature.specs, embeddings)
        self.tables = [table.name for table, _ in lookups]
        for graph in (self.keys, self.predict):
            refuse_foreign(model, graph)
        # In the order in which online training publishes them.
        weights = [*model.trainable_variables, *model.non_trainable_weights]
        self.dense = [_tensor_of(each) for each in weights if not isinstance(each, TableProxy)]
        self.vocabularies = list(vocabularies(model))


def _tensor_of(variable: Any) -> tf.Variable:
    """Returns the variable of TensorFlow behind one of Keras 2 or 3."""
    return variable if isinstance(variable, tf.Variable) else variable.value
