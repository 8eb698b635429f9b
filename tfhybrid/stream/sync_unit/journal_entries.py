"""Entries of a target model's journal: their records, and whether they can be applied."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from tfhybrid.errors import DataError, StreamError
from tfhybrid.stream.queues.queue import QueuePosition, Record
from tfhybrid.stream.sync_unit.lease_ledger import LeaseLedger
from tfhybrid.stream.weights import update_check
from tfhybrid.stream.weights.model_spec import ModelSpec
from tfhybrid.stream.weights.weight_update import WeightUpdate


class ModelEntry(NamedTuple):
    """Entry that creates the weights: specification, and initial dense weights, float32."""

    spec: ModelSpec
    dense: Sequence[np.ndarray]


class TermEntry(NamedTuple):
    """Entry that starts a provider's term on a queue.

    `first` is the position at which to begin, if the model has trained nothing of the queue.
    """

    queue: str
    term: int
    first: QueuePosition


class SkipEntry(NamedTuple):
    """Entry of a range of a queue without good rows, from `begin` until before `end`."""

    queue: str
    begin: QueuePosition
    end: QueuePosition


Entry = ModelEntry | TermEntry | SkipEntry | WeightUpdate


def encoded(entry: Entry) -> Record:
    """Returns the record of an entry, as the journal stores it.

    Args:
        entry: Entry to store.
    """
    if isinstance(entry, ModelEntry):
        arrays = {str(i): each for i, each in enumerate(entry.dense)}
        attributes = {"kind": "model", "spec": entry.spec.to_json()}
        return Record(safetensors.numpy.save(arrays), attributes)
    if isinstance(entry, TermEntry):
        text = json.dumps([entry.queue, entry.term, *entry.first])
        return Record(b"", {"kind": "epoch", "epoch": text})
    if isinstance(entry, SkipEntry):
        text = json.dumps([entry.queue, *entry.begin, *entry.end])
        return Record(b"", {"kind": "passed", "range": text})
    return entry.to_record()


def decoded(record: Record) -> Entry:
    """Returns the entry of a record.

    Args:
        record: Record of a journal.

    Raises:
        DataError: The record has none of the known kinds, or is malformed.
    """
    kind = record.attributes.get("kind")
    try:
        if kind == "update":
            return WeightUpdate.from_record(record)
        if kind == "model":
            spec = ModelSpec.from_json(record.attributes["spec"])
            arrays = safetensors.numpy.load(record.payload) if spec.shapes else {}
            return ModelEntry(spec, [arrays[str(i)] for i in range(len(spec.shapes))])
        if kind == "epoch":
            queue, term, *first = json.loads(record.attributes["epoch"])
            return TermEntry(queue, term, QueuePosition(*first))
        if kind == "passed":
            queue, *numbers = json.loads(record.attributes["range"])
            return SkipEntry(queue, QueuePosition(*numbers[:2]), QueuePosition(*numbers[2:]))
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"The record is no {kind} of a journal: {error}") from error
    raise DataError(f"A record must be of kind model, epoch, passed or update. Received: {kind!r}")


def check(entry: Entry, spec: ModelSpec | None, ledger: LeaseLedger) -> None:
    """Checks that an entry can be applied. Changes nothing.

    Args:
        entry: Entry to check.
        spec: Specification of the model; `None` before it has weights.
        ledger: Terms and applied ranges before the entry.

    Raises:
        DataError: The entry is malformed, or its rows are in the weights already.
        ConfigError: An update does not fit the model.
        LeaseRefusedError: The entry is for another model or queue, or its lease has ended.
        StreamError: An update comes before the weights.
    """
    if isinstance(entry, ModelEntry):
        if spec is not None:
            raise DataError("The model has weights already")
    elif isinstance(entry, SkipEntry):
        ledger.check_skip(entry.queue, (entry.begin, entry.end))
    elif isinstance(entry, WeightUpdate):
        if spec is None:
            raise StreamError("The model has no weights yet")
        update_check.check_fields(entry)
        update_check.check_shapes(spec, entry)
        if not ledger.admits(entry):
            raise DataError("The rows of the update are in the weights already")


def note(entry: Entry, ledger: LeaseLedger) -> None:
    """Records in the ledger that an entry is applied. Cannot fail after `check`.

    Args:
        entry: Entry that is applied.
        ledger: Ledger of the model.
    """
    if isinstance(entry, TermEntry):
        ledger.start_term(entry.queue, entry.term, entry.first)
    elif isinstance(entry, SkipEntry):
        ledger.applied[entry.queue].add((entry.begin, entry.end))
    elif isinstance(entry, WeightUpdate):
        ledger.add(entry)


def described(record: Record) -> str:
    """Returns one line about a record, for people.

    Args:
        record: Record of a journal, which may be malformed.
    """
    try:
        entry = decoded(record)
    except DataError as error:
        return str(error)
    if isinstance(entry, ModelEntry):
        return f"weights with the tables {sorted(entry.spec.tables)}"
    if isinstance(entry, TermEntry):
        return f"term {entry.term} of queue {entry.queue}"
    if isinstance(entry, SkipEntry):
        return f"queue {entry.queue} has no good rows in {_span(entry.begin, entry.end)}"
    return (
        f"update of trainer {entry.trainer}, lease {entry.fence} of queue {entry.queue}, "
        f"{entry.rows} rows in {_span(entry.begin, entry.end)}"
    )


def _span(begin: QueuePosition, end: QueuePosition) -> str:
    return f"[{begin[0]}:{begin[1]}, {end[0]}:{end[1]})"
