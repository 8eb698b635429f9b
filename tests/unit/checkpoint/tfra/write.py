"""Wrote the files beside it: TFRA 0.8.1 and TensorFlow 2.16.2.

Runs in the environment that `benchmarks/support/peers/install_tfra` makes:

TF_USE_LEGACY_KERAS=1 TFRA_PYTHON write.py DIRECTORY
"""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf
import tensorflow_recommenders_addons.dynamic_embedding as de

KEYS = [0, -1, 5, 2**62, -(2**63) + 5, 77]

variable = de.get_variable("item", dim=4, initializer=0.0, devices=["/CPU:0"])
values = np.arange(4 * len(KEYS), dtype=np.float32).reshape(len(KEYS), 4)
variable.upsert(tf.constant(KEYS, tf.int64), tf.constant(values))
variable.save_to_file_system(sys.argv[1])
