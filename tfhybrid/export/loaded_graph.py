"""The graph of a model without its tables, loaded where nothing of the model's code is."""

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
    """What `serving_graph` wrote.

    Attributes:
        module: As `tf.saved_model.load` returns it; `module.dense` has the dense weights.
        tables: The table that each lookup reads.
    """

    module: Any
    tables: list[str]

    @property
    def keys(self) -> Any:
        """From inputs by name to the keys of lookup 0, 1 and so on, `"keys_0"`."""
        return self.module.signatures["keys"]

    @property
    def predict(self) -> Any:
        """From inputs by name, and embeddings `"embeddings_0"` and so on, to outputs by name."""
        return self.module.signatures["predict"]

    @property
    def inputs(self) -> dict[str, tf.TensorSpec]:
        """The inputs by name."""
        return dict(self.keys.structured_input_signature[1])

    def assign(self, dense: Any) -> None:
        """Gives the graph the dense weights of a publication.

        Raises:
            ExportError: They are of another model.
        """
        wanted = [tuple(each.shape) for each in self.module.dense]
        found = [tuple(each.shape) for each in dense]
        if wanted != found:
            raise ExportError(f"The graph has dense weights {wanted}. Received: {found}")
        for variable, value in zip(self.module.dense, dense, strict=True):
            variable.assign(tf.cast(value, variable.dtype))


def load_graph(path: str | os.PathLike[str]) -> LoadedGraph:
    """Loads what `serving_graph` wrote.

    Raises:
        ExportError: It is not there.
        CorruptFileError: It is something else.
    """
    try:
        tables = json.loads((Path(path) / TABLES).read_text())
        return LoadedGraph(tf.saved_model.load(os.fspath(path)), [str(name) for name in tables])
    except OSError as error:
        raise ExportError(f"There is no serving graph in {path}: {error}") from error
    except (ValueError, TypeError) as error:
        raise CorruptFileError(f"{path} is no serving graph: {error}") from error
