"""Variables that are written a piece at a time, as TensorFlow restores them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfhybrid.export.variable_files import VariableFiles

WIDE = "wide/.ATTRIBUTES/VARIABLE_VALUE"


def saved(folder: Path) -> Path:
    module = tf.Module()
    module.wide = tf.Variable([[0.0] * 3], shape=[None, 3])
    module.dense = tf.Variable(tf.cast([1.5, 2.5], tf.bfloat16))
    module.steps = tf.Variable(7, dtype=tf.int64)
    tf.saved_model.save(module, str(folder))
    return folder


def checkpoint_hash(folder: Path) -> int:
    return tf.saved_model.experimental.read_fingerprint(str(folder)).checkpoint_hash


def hash_of_index(folder: Path) -> int:
    index = tf.io.read_file(str(folder / "variables/variables.index"))
    return int(tf.fingerprint([index]).numpy().view(np.uint64)[0, 0])


def test_slices_in_any_order_are_one_variable_and_the_others_stay(tmp_path) -> None:
    folder = saved(tmp_path / "model")
    assert checkpoint_hash(folder) == hash_of_index(folder)
    values = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    with VariableFiles(folder, [WIDE], piece_bytes=13 * 3 * 4) as files:
        for first in (90, 20, 0, 50):
            last = {90: 100, 20: 50, 0: 20, 50: 90}[first]
            files.add(WIDE, (100, 3), first, values[first:last])
    loaded = tf.saved_model.load(str(folder))
    np.testing.assert_array_equal(loaded.wide, values)
    np.testing.assert_array_equal(loaded.dense, tf.cast([1.5, 2.5], tf.bfloat16))
    assert int(loaded.steps) == 7
    assert len(list((folder / "variables").glob("variables.data-*-of-00004"))) == 4
    assert not (folder / "pieces").exists()
    assert checkpoint_hash(folder) == hash_of_index(folder)


def test_an_error_leaves_the_files_as_they_were(tmp_path) -> None:
    folder = saved(tmp_path / "model")
    before = (folder / "variables/variables.index").read_bytes()
    with (
        pytest.raises(tf.errors.OpError, match="shape"),
        VariableFiles(folder, [WIDE], piece_bytes=1) as files,
    ):
        files.add(WIDE, (2, 3), 0, np.ones((1, 7), np.float32))
    assert (folder / "variables/variables.index").read_bytes() == before
    np.testing.assert_array_equal(tf.saved_model.load(str(folder)).wide, np.zeros((1, 3)))
