"""Loaded graph of a model without its tables. It does not need the model's code."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfhybrid.errors import CorruptFileError, ExportError

TABLES = "tables.json"


@dataclasses.dataclass(frozen=True)
class LoadedGraph:
    """Graph that `serving_graph` wrote, loaded by `load_graph`.

    Attributes:
        module: Result of `tf.saved_model.load`; `module.dense` has the dense weights.
        tables: Name of the table that each lookup reads, by the number of the lookup.
    """

    module: Any
    tables: list[str]

    @property
    def keys(self) -> Any:
        """Function that returns the keys that the model looks up for some inputs.

        Takes the inputs as keyword arguments. Returns a dict of int64 tensors: `"keys_0"` holds the
        keys of lookup 0, `"keys_1"` those of lookup 1, and so on.
        """
        return self.module.signatures["keys"]

    @property
    def predict(self) -> Any:
        """Function that returns the model's outputs, a dict of tensors by name.

        Takes keyword arguments: the inputs, and float32 embeddings. `embeddings_0` holds the
        embeddings of the keys of lookup 0, which the function `keys` returns as `"keys_0"`, and so
        on. Its shape is that of the keys, with `dim` as a last axis.
        """
        return self.module.signatures["predict"]

    @property
    def inputs(self) -> dict[str, tf.TensorSpec]:
        """Specifications of the inputs by name."""
        return dict(self.keys.structured_input_signature[1])

    def assign(self, dense: Any) -> None:
        """Assigns the dense weights of a publication to the graph.

        Args:
            dense: Dense weights, in the order of `ModelSpec.shapes`.

        Raises:
            ExportError: The weights are those of another model. Nothing was changed.
        """
        expected = [tuple(each.shape) for each in self.module.dense]
        received = [tuple(each.shape) for each in dense]
        if expected != received:
            raise ExportError(
                f"The graph has dense weights of the shapes {expected}: write it again with "
                f"serving_graph for the model that is published. Received: {received}"
            )
        for variable, value in zip(self.module.dense, dense, strict=True):
            variable.assign(tf.cast(value, variable.dtype))


def load_graph(path: str | os.PathLike[str]) -> LoadedGraph:
    """Loads a graph that `serving_graph` wrote.

    Args:
        path: Folder of the graph.

    Returns:
        The graph, with the names of its tables.

    Raises:
        ExportError: The folder or a file of it is missing.
        CorruptFileError: The folder has something else.
    """
    try:
        tables = json.loads((Path(path) / TABLES).read_text())
        return LoadedGraph(tf.saved_model.load(os.fspath(path)), [str(name) for name in tables])
    except OSError as error:
        raise ExportError(f"There is no serving graph in {path}: {error}") from error
    except (ValueError, TypeError) as error:
        raise CorruptFileError(f"{path} is not a serving graph: {error}") from error
