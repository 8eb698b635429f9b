"""Export of publications as SavedModels for stock TensorFlow Serving."""

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
    """Writer of publications as SavedModels, each publication as the next version.

    TensorFlow Serving loads the highest version. A rollback becomes a new version with old weights.
    Use it on one thread.

    Args:
        reader: Reader of the publications. Only this object may refresh it; the caller closes it.
        graph: Folder that `tfhybrid.export.serving_graph` wrote.
        path: Folder of the versions, which TensorFlow Serving calls the base path.
        keep: Number of versions to keep; older ones are deleted. Default 2.

    Raises:
        ConfigError: `path` is an address such as `gs://`.
        ExportError: The folder has no serving graph.
        CorruptFileError: The folder contains something else.
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
        self._path = versions.local_folder(path)
        self._keep = keep
        self._number = -1  # number of the publication that was written last

    def export(self) -> Path | None:
        """Refreshes the reader, and writes its publication unless it was the last one written.

        Returns:
            The folder of the new version; `None` if there was nothing to write.

        Raises:
            ExportError: The version could not be written. The next call tries again.
            PublicationError: The publication is missing, or of a chain that has ended.
            CorruptFileError: A file of the publication is damaged.
            OSError: The folder of the publications cannot be read.
            StoreError: The rows do not fit in shared memory.
        """
        self._reader.refresh()
        publication = self._reader.publication
        if publication is None or publication.number == self._number:
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
        self._number = publication.number
        for old in versions.versions(self._path)[: -self._keep]:
            shutil.rmtree(self._path / str(old), ignore_errors=True)
        _log.info("%s: publication %d is in %s", self._reader.name, publication.number, folder)
        return folder


class _StockModel(tf.Module):
    """Graph with its tables; their rows are read from the store only while they are saved."""

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
    """Table of a reader, with the interface of `CopiedTable`."""

    name: str
    rows: ServedRows
    seed: int
    spec: Any

    decay = 1.0

    @property
    def dim(self) -> int:
        return int(self.spec.dim)

    @property
    def unseen(self) -> str:
        return str(self.spec.unseen)

    @property
    def config(self) -> Any:
        return SimpleNamespace(initializer=SimpleNamespace(native=self.spec.initializer))

    def blocks(self) -> Iterator[RowBlock]:
        return self.rows.blocks(self.name)

    def lookup(self, keys: np.ndarray) -> np.ndarray:
        return self.rows.read(self.name, keys)
