"""Publications as SavedModels, which stock TensorFlow Serving loads."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from tfhybrid.checkpoint import storage
from tfhybrid.core.row_block import RowBlock
from tfhybrid.errors import ExportError
from tfhybrid.export import streamed, versions
from tfhybrid.export.loaded_graph import LoadedGraph, load_graph
from tfhybrid.export.sorted_keys import SortedKeys
from tfhybrid.export.stock_table import StockTable
from tfhybrid.serving.reader import Reader
from tfhybrid.serving.served_rows import ServedRows
from tfhybrid.stream.weights.model_spec import ModelSpec

_log = logging.getLogger("tfhybrid.serving")


class StockExport:
    """Writes what a reader has as a SavedModel, each publication as the next version.

    TensorFlow Serving loads the highest version. A rollback is a new version with old weights.

    Args:
        reader: Of the publications; nobody else refreshes it.
        graph: The folder that `tfhybrid.export.serving_graph` wrote.
        path: Where the versions go, what TensorFlow Serving calls the base path.
        keep: How many versions are kept.

    Raises:
        ExportError: There is no such graph.
    """

    def __init__(
        self,
        reader: Reader,
        graph: str | os.PathLike[str],
        path: str | os.PathLike[str],
        *,
        keep: int = 2,
    ) -> None:
        self._reader = reader
        self._graph = load_graph(graph)
        self._path = Path(path)
        self._keep = keep
        self._number = -1  # of the publication that was written last

    def export(self) -> Path | None:
        """Takes the publication that readers shall have; writes it, if it is another one.

        Returns:
            The folder of the version, or `None` if there was nothing to write.

        Raises:
            ExportError: It could not be written; the next call tries again.
            PublicationError: It could not be read.
        """
        self._reader.refresh()
        found = self._reader.publication
        if found is None or found.number == self._number:
            return None
        folder = versions.choose(self._path, None)
        try:
            with (
                storage.appearing(folder) as unfinished,
                contextlib.ExitStack() as files,
                self._reader.held() as held,
            ):
                module = _StockModel(self._graph, *held, unfinished, files)
                signatures = {"serving_default": module.prediction}
                tables = dict(enumerate(module.tables.values()))
                streamed.save(module, unfinished, signatures, tables)
        except (OSError, tf.errors.OpError, AssertionError) as error:
            raise ExportError(f"{folder} could not be written: {error}") from error
        self._number = found.number
        for old in versions.versions(self._path)[: -self._keep]:
            shutil.rmtree(self._path / str(old), ignore_errors=True)
        _log.info("%s: publication %d is %s", self._reader.name, found.number, folder)
        return folder


class _StockModel(tf.Module):
    """The graph with its tables, whose rows are written as they are read."""

    def __init__(
        self,
        graph: LoadedGraph,
        rows: ServedRows,
        spec: ModelSpec,
        dense: Sequence[np.ndarray],
        folder: Path,
        files: contextlib.ExitStack,
    ) -> None:
        super().__init__()
        self.graph = graph.module
        graph.assign(dense)
        self.tables = {}
        for mark, name in enumerate(sorted(set(graph.tables))):
            table = _PublishedTable(name, rows, spec.seed, spec.tables[name])
            keys = files.enter_context(SortedKeys(table, min_norm=0.0, directory=folder))
            self.tables[name] = StockTable(table, keys, mark=mark)
        tables, lookups = self.tables, graph.tables

        def serve(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            keys = graph.keys(**inputs)
            embeddings = {
                f"embeddings_{i}": tables[name].lookup(keys[f"keys_{i}"])
                for i, name in enumerate(lookups)
            }
            outputs: dict[str, tf.Tensor] = graph.predict(**inputs, **embeddings)
            return outputs

        self.prediction = tf.function(serve).get_concrete_function(graph.inputs)


@dataclasses.dataclass(frozen=True)
class _PublishedTable:
    """A table of a reader, as `StockTable` copies it."""

    name: str
    rows: ServedRows
    seed: int
    spec: Any

    decay = 1.0

    @property
    def dim(self) -> int:
        return int(self.spec.dim)

    @property
    def config(self) -> Any:
        return SimpleNamespace(initializer=SimpleNamespace(native=self.spec.initializer))

    def blocks(self) -> Iterator[RowBlock]:
        return self.rows.blocks(self.name)

    def lookup(self, keys: np.ndarray) -> np.ndarray:
        return self.rows.read(self.name, keys)
