"""Online training in plain NumPy: a journal replayed, and a trainer that sends deltas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import safetensors.numpy

from tfhybrid.core import native
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.weights.model_spec import DENSE_TABLE, ModelSpec, dense_rows
from tfhybrid.stream.weights.weight_update import WeightUpdate


class Replay:
    """Rows of each table, made by the updates of a journal in their order, in float32.

    Tables with an optimizer have plain SGD or Adagrad.
    """

    def __init__(self, spec: ModelSpec, dense: Iterable[np.ndarray]) -> None:
        self.spec = spec
        self.rows: dict[str, dict[int, np.ndarray]] = {name: {} for name in spec.all_tables}
        self.squares: dict[str, dict[int, np.ndarray]] = {name: {} for name in spec.all_tables}
        dense = list(dense)
        if dense:
            self.rows[DENSE_TABLE] = dict(zip(*map(list, dense_rows(dense)), strict=True))

    def lookup(self, table: str, keys: np.ndarray) -> np.ndarray:
        spec = self.spec.all_tables[table]
        seed = native.table_seed(self.spec.seed, table)
        initial = native.initial_rows(*spec.initializer, seed, np.asarray(keys), spec.dim)
        found = (
            self.rows[table].get(int(key), row) for key, row in zip(keys, initial, strict=True)
        )
        return np.array(list(found), np.float32).reshape(len(keys), spec.dim)

    def apply(self, update: WeightUpdate) -> None:
        for table, spec in self.spec.all_tables.items():
            keys, values = update.keys[table], update.values[table]
            before = self.lookup(table, keys)
            for key, row, value in zip(keys.tolist(), before, values, strict=True):
                change = value if spec.adds else self._step(table, key, value, update.rates)
                self.rows[table][key] = row + change

    def _step(
        self, table: str, key: int, gradient: np.ndarray, rates: Mapping[str, float]
    ) -> np.ndarray:
        rate = np.float32(rates[table])
        settings = self.spec.all_tables[table].settings
        if settings["kind"] == native.OptimizerKind.SGD:
            return -(rate * gradient)
        start = np.full_like(gradient, settings["initial_accumulator_value"])
        squares = self.squares[table].get(key, start) + gradient * gradient
        self.squares[table][key] = squares
        return -(rate * gradient / np.sqrt(squares + np.float32(settings["epsilon"])))


def read_journal(folder: Path) -> tuple[ModelSpec, list[np.ndarray], list[WeightUpdate]]:
    """Returns what a target model consists of, its first dense weights, and all its updates.

    Args:
        folder: Of the journal, which nothing has been cut from.
    """
    journal = LogQueue(folder)
    records = []
    while piece := journal.read(len(records)).records:
        records += [record for _, record in piece]
    (begun,) = [each for each in records if each.attributes["kind"] == "model"]
    arrays = safetensors.numpy.load(begun.payload) if begun.payload else {}
    updates = [
        WeightUpdate.from_record(each) for each in records if each.attributes["kind"] == "update"
    ]
    dense = [arrays[str(number)] for number in range(len(arrays))]
    return ModelSpec.from_json(begun.attributes["spec"]), dense, updates


def replayed(folder: Path) -> tuple[Replay, list[WeightUpdate]]:
    """Returns the weights to which the updates of a journal lead, and the updates."""
    spec, dense, updates = read_journal(folder)
    replay = Replay(spec, dense)
    for update in updates:
        replay.apply(update)
    return replay, updates
