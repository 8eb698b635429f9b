"""Predictions with the published weights of a model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tfhybrid.errors import ConfigError, DataError
from tfhybrid.export.loaded_graph import load_graph
from tfhybrid.serving.reader import PublishedWeights
from tfhybrid.serving.served_inputs import tensors_of
from tfhybrid.serving.shared_lock import SharedLock


class ReadsWeights(Protocol):
    """Source of published weights: a `Reader` or a `RemoteReader`."""

    def read(self, keys: Mapping[str, np.ndarray], *, dense: bool = False) -> PublishedWeights:
        """Returns rows, and optionally the dense weights, of one publication.

        Args:
            keys: int64 of any shape, by table.
            dense: Whether to return the dense weights too. Default false.

        Raises:
            PublicationError: No publication has been read yet.
            ConfigError: The model has no such table.
            DataError: A key is not a whole number of int64.
            StreamError: A remote node does not answer.
        """


class ServedModel:
    """Model that serves predictions, with its graph from a file and its weights from a reader.

    It needs neither Horovod nor the code of the model. Thread-safe. Rows and dense weights of a
    prediction are of the same publication.

    Args:
        graph: Folder that `tfhybrid.export.serving_graph` wrote.
        reader: Reader of the model's publications; the caller closes it.
        finite: Whether requests with NaN or infinite numbers are refused. Default true.

    Raises:
        ExportError: The folder has no serving graph.
        CorruptFileError: The folder contains something else.

    Example:

    ```python
    reader = tfhybrid.serving.Reader("/srv/publications/ads")
    reader.follow()
    model = tfhybrid.serving.ServedModel("/srv/graphs/ads/1", reader)
    scores = model.predict({"item": [[3], [7]], "user": [[1], [1]]})["output_0"]
    ```
    """

    def __init__(
        self, graph: str | os.PathLike[str], reader: ReadsWeights, *, finite: bool = True
    ) -> None:
        self._graph = load_graph(graph)
        self._finite = finite
        self._reader = reader
        self._specs = self._graph.inputs
        self._lock = SharedLock()
        self._dense_of = -1  # number of the publication of the dense weights; guarded by _lock

    def predict(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Returns the outputs by name, as the signature of an exported model does.

        Args:
            inputs: Arrays or lists, by name; exactly the inputs of the model.

        Raises:
            ConfigError: An input is missing, or the model has no such input.
            DataError: A value is bad, or the inputs do not fit each other. A server answers such a
                request with INVALID_ARGUMENT and the message.
            PublicationError: The reader has not read a publication yet.
            ExportError: The publication is of another model than the graph.
            StreamError: The node of a `RemoteReader` does not answer.
        """
        if set(inputs) != set(self._specs):
            raise ConfigError(f"Inputs are {sorted(self._specs)}. Received: {sorted(inputs)}")
        named = tensors_of(self._specs, inputs, finite=self._finite)
        try:
            return self._predict(named)
        except tf.errors.InvalidArgumentError as error:
            raise DataError(
                f"The inputs {sorted(inputs)} must fit the model and each other. "
                f"Received: {_plain(error.message)}"
            ) from error

    def _predict(self, named: dict[str, tf.Tensor]) -> dict[str, np.ndarray]:
        lookups = self._graph.keys(**named)
        keys = [lookups[f"keys_{i}"].numpy() for i in range(len(self._graph.tables))]
        while True:
            number, embeddings = self._embeddings(keys)
            with self._lock.shared():
                if self._dense_of == number:
                    outputs = self._graph.predict(**named, **embeddings)
                    return {name: np.asarray(output) for name, output in outputs.items()}
            self._read_dense()

    def _embeddings(self, keys: list[np.ndarray]) -> tuple[int, dict[str, tf.Tensor]]:
        """Reads the rows of all lookups in one call, so that they are of one publication.

        Args:
            keys: int64 of any shape, by lookup.

        Returns:
            Number of the publication, and the embeddings by input of the graph.
        """
        of_tables: dict[str, list[np.ndarray]] = {}
        for table, some in zip(self._graph.tables, keys, strict=True):
            of_tables.setdefault(table, []).append(some.ravel())
        weights = self._reader.read({name: np.concatenate(k) for name, k in of_tables.items()})
        rows = {
            name: iter(np.split(weights.rows[name], np.cumsum([len(k) for k in some])[:-1]))
            for name, some in of_tables.items()
        }
        return weights.number, {
            f"embeddings_{i}": tf.constant(next(rows[table]).reshape(*keys[i].shape, -1))
            for i, table in enumerate(self._graph.tables)
        }

    def _read_dense(self) -> None:
        with self._lock.alone():
            weights = self._reader.read({}, dense=True)
            if weights.number != self._dense_of:
                self._dense_of = -1
                self._graph.assign(weights.dense)
                self._dense_of = weights.number


def _plain(message: str) -> str:
    """Returns the line of a TensorFlow error that says what is wrong."""
    frame = ("Graph execution error", "Detected at node", "<stack traces", "[[{{")
    lines = [line.strip() for line in message.splitlines()]
    return next((line for line in lines if line and not line.startswith(frame)), message)
