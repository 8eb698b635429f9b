"""Frozen weights of a target model, and the hash that tells its histories apart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from tfhybrid.core import native
from tfhybrid.core.frozen_table import FrozenTable
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.weights.observed import Observed
from tfhybrid.stream.weights.weight_store import WeightStore


class WeightSnapshot(NamedTuple):
    """Frozen weights of a target model at one version.

    Attributes:
        store: Store of the weights.
        frozen: Frozen tables by name, as `WeightStore.frozen` yields them.
        version: Number of updates in the weights.
        history: Hash of all updates so far; tells apart two histories with the same version.
        observed: Observations of the samples trained since the last publication.
    """

    store: WeightStore
    frozen: Mapping[str, FrozenTable]
    version: int
    history: str
    observed: Observed


def next_history(history: str, record: Record) -> str:
    """Returns the hash of all updates of a model, after one more record of its journal.

    Args:
        history: Hash before the record; empty for none.
        record: Record that is added.
    """
    digest = hashlib.blake2b(history.encode(), digest_size=8)
    digest.update(native.crc32c(record.payload).to_bytes(4, "little"))
    for name in sorted(record.attributes):
        digest.update(f"{name}={record.attributes[name]};".encode())
    return digest.hexdigest()
