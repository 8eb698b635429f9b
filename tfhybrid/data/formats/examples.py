"""Examples of TFRecord that are read in Python: a few for their types, or all of a bad unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]


def kinds_in(records: Iterable[bytes], names: Sequence[str]) -> dict[str, str]:
    """Returns the kind of each feature, such as `"int64_list"`, from the first record with it.

    Args:
        records: Records, each a `tf.train.Example`; others are passed over.
        names: Names of the features.
    """
    kinds: dict[str, str] = {}
    for record in records:
        try:
            features = tf.train.Example.FromString(record).features.feature
        except DecodeError:
            continue
        for name in names:
            if name not in kinds and name in features:
                kind = features[name].WhichOneof("kind")
                if kind and getattr(features[name], kind).value:
                    kinds[name] = kind
        if len(kinds) == len(names):
            break
    return kinds


def feature_lists_in(record: bytes) -> list[str]:
    """Returns the names of a record's feature lists, which only a `tf.train.SequenceExample` has.

    Such a record parses as a `tf.train.Example` without its feature lists.

    Args:
        record: Record of any kind.
    """
    try:
        return sorted(tf.train.SequenceExample.FromString(record).feature_lists.feature_list)
    except DecodeError:
        return []


class Examples:
    """Records that are parsed one by one, because features have several types or are malformed.

    Args:
        records: Records.

    Attributes:
        malformed: Records that are no examples, by their numbers.
    """

    def __init__(self, records: Iterable[bytes]) -> None:
        self.malformed: dict[int, bytes] = {}
        self._features: list[Any] = []
        for number, record in enumerate(records):
            try:
                self._features.append(tf.train.Example.FromString(record).features.feature)
            except DecodeError:
                self.malformed[number] = record[:100]
                self._features.append({})

    def values(self, name: str) -> tuple[list[Any], np.ndarray]:
        """Returns the values of a feature in all records, and their number per record.

        Args:
            name: Name of the feature.
        """
        values: list[Any] = []
        lengths = np.zeros(len(self._features), np.int64)
        for number, features in enumerate(self._features):
            kind = features[name].WhichOneof("kind") if name in features else None
            if kind:
                held = getattr(features[name], kind).value
                values += map(np.float32, held) if kind == "float_list" else held
                lengths[number] = len(held)
        return values, lengths
