"""Update that a trainer sends for a lease: deltas or gradients of the rows that it trained."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from tfhybrid.errors import DataError
from tfhybrid.stream.queues.queue import QueuePosition, Record
from tfhybrid.stream.weights.lease import Range
from tfhybrid.stream.weights.observed import Observed


@dataclasses.dataclass(frozen=True)
class WeightUpdate:
    """Update of a target model's weights, made from the rows of one lease.

    Args:
        model: Name of the target model.
        queue: Name of the lease's queue.
        fence: Fence of the lease.
        begin: Position of the lease's first row.
        end: Position behind the lease's last row.
        rows: Number of rows in the lease.
        trainer: Name of the trainer that sends the update, for errors and logs.
        version: Version of the weights that the update is based on.
        keys: Keys by table name, int64 `[n]`, each key once. Dense weights are tables, too.
        values: Delta or gradient of each key by table name, float32 `[n, dim]`.
        rates: Learning rate of each table that has an optimizer, by table name. Default: none.
        observed: Observations of the rows, as JSON of `Observed.to_json`. They change no weight.
            Default: empty.
        event_time: Event time of the lease's latest row, in seconds since 1970, for eviction by
            event time. Default: `None`, unknown.
    """

    model: str
    queue: str
    fence: int
    begin: QueuePosition
    end: QueuePosition
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
        """Range of the lease: position of its first row, and position behind its last row."""
        return self.begin, self.end

    @functools.cached_property
    def observations(self) -> Observed:
        """Observations of the rows, `observed` parsed.

        Raises:
            ValueError, TypeError, AttributeError, OverflowError: They are malformed.
        """
        return Observed.from_json(self.observed, self.rows)

    def to_record(self) -> Record:
        """Returns the update as a record, for the journal and for messages."""
        # `np.ascontiguousarray` would turn a scalar into an array of one.
        arrays = {f"keys/{name}": np.asarray(k, order="C") for name, k in self.keys.items()}
        arrays |= {f"values/{name}": np.asarray(v, order="C") for name, v in self.values.items()}
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("keys", "values")
        }
        attributes = {"kind": "update", "update": json.dumps(fields)}
        return Record(safetensors.numpy.save(arrays), attributes)

    @classmethod
    def from_record(cls, record: Record) -> WeightUpdate:
        """Returns the update from the record of `to_record`.

        Raises:
            DataError: The record is not an update.
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
            begin, end = (QueuePosition(*fields.pop(name)) for name in ("begin", "end"))
            return cls(begin=begin, end=end, keys=keys, values=values, **fields)
        except (SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"The record is not an update of weights: {error!r}") from error
