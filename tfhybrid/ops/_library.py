"""The library of the native ops, loaded once."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from tfhybrid.ops._abi import check_build

check_build()
OPS = tf.load_op_library(str(Path(__file__).parent / "libtfhybrid_ops.so"))
