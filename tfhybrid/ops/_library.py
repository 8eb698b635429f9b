"""The library of the native ops, loaded once."""

from __future__ import annotations

import tensorflow as tf

from tfhybrid.ops._abi import find_library

OPS = tf.load_op_library(str(find_library()))
