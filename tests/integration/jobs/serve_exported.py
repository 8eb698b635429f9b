"""Serves an exported model where only TensorFlow is installed: FOLDER INPUTS.npz OUTPUTS.npz."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import tensorflow as tf

found = [name for name in ("tfhybrid", "horovod") if importlib.util.find_spec(name)]
assert not found, f"this environment has more than TensorFlow: {found}"

folder, inputs, outputs = sys.argv[1:]
signature = tf.saved_model.load(folder).signatures["serving_default"]
with np.load(inputs) as arrays:
    served = signature(**{name: tf.constant(arrays[name]) for name in arrays.files})
np.savez(outputs, **{name: value.numpy() for name, value in served.items()})
