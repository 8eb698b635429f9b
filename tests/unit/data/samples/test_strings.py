from __future__ import annotations

import pytest
import tensorflow as tf

from tfhybrid.data import string_keys
from tfhybrid.errors import ConfigError

# FarmHash's Fingerprint64 of these strings, modulo 2^63 - 1.
KNOWN = {"": 1936946117179621456, "shoes": 2059773308624955402, "käse": 2034639830787870644}


def test_keys_never_change() -> None:
    keys = string_keys(tf.constant(list(KNOWN)))
    assert dict(zip(KNOWN, keys.numpy().tolist(), strict=True)) == KNOWN


def test_kinds_are_kept() -> None:
    ragged = tf.ragged.constant([["a", "b"], []])
    assert string_keys(ragged).to_list() == [
        string_keys(tf.constant(["a", "b"])).numpy().tolist(),
        [],
    ]
    sparse = string_keys(ragged.to_sparse())
    assert sparse.values.numpy().tolist() == string_keys(ragged).flat_values.numpy().tolist()
    assert string_keys(tf.constant([["a"]])).shape == (1, 1)


def test_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs strings\. Received: int32"):
        string_keys(tf.constant([1]))
