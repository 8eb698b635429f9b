"""What a trainer sends under a lease: deltas or gradients of the rows that it touched."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from tfhybrid.errors import DataError
from tfhybrid.stream.queues.applied_ranges import Range
from tfhybrid.stream.queues.queue import Position, Record


@dataclasses.dataclass(frozen=True)
class WeightUpdate:
    """An update of a target model's weights.

    Args:
        model: The target model.
        queue: Of the lease.
        fence: Of the lease.
        begin: Of the lease.
        end: Of the lease.
        rows: Of the lease.
        trainer: Who sends it.
        version: Of the weights that it is based on.
        keys: int64 `[n]` of each table, each key once.
        values: Of each key, float32 `[n, dim]`: a delta, or a gradient.
        rates: Learning rate of each table that has an optimizer.
        observed: `Observed.to_json` of the rows; it changes no weight.
        event_time: When the latest of its rows happened, by which tables may evict others; `None`
            is not known.
    """

    model: str
    queue: str
    fence: int
    begin: Position
    end: Position
    rows: int
    trainer: str
    version: int
    keys: Mapping[str, np.ndarray]
    values: Mapping[str, np.ndarray]
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    observed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    event_time: int | None = None

    @property
    def range(self) -> Range:
        """Of the lease."""
        return self.begin, self.end

    def to_record(self) -> Record:
        """Returns it as a journal stores it, and as it travels."""
        arrays = {f"keys/{name}": np.ascontiguousarray(k) for name, k in self.keys.items()}
        arrays |= {f"values/{name}": np.ascontiguousarray(v) for name, v in self.values.items()}
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("keys", "values")
        }
        attributes = {"kind": "update", "update": json.dumps(fields)}
        return Record(safetensors.numpy.save(arrays), attributes)

    @classmethod
    def from_record(cls, record: Record) -> WeightUpdate:
        """Returns what `to_record` was called on.

        Raises:
            DataError: It is nothing of the kind.
        """
        try:
            fields = json.loads(record.attributes["update"])
            arrays = safetensors.numpy.load(record.payload)
            keys, values = (
                {
                    name.removeprefix(kind): array
                    for name, array in arrays.items()
                    if name.startswith(kind)
                }
                for kind in ("keys/", "values/")
            )
            begin, end = (Position(*fields.pop(name)) for name in ("begin", "end"))
            return cls(begin=begin, end=end, keys=keys, values=values, **fields)
        except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"What should be an update of weights is none: {error!r}") from error
