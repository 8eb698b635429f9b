"""Loads the newest export and predicts. Needs TensorFlow alone, not tfhybrid.

python predict.py [output/exported]
"""

from __future__ import annotations

import sys
from pathlib import Path

import tensorflow as tf

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "output/exported")
newest = max(FOLDER.iterdir(), key=lambda version: int(version.name))
predict = tf.saved_model.load(str(newest)).signatures["serving_default"]
rows = {
    "user": [[7], [7], [10**9]],  # the last user was never seen
    "item": [[3], [4], [4]],
    "hour": [[20], [20], [20]],
}
answer = predict(**{name: tf.constant(keys, tf.int64) for name, keys in rows.items()})
(logits,) = answer.values()
for number, probability in enumerate(tf.sigmoid(logits[:, 0]).numpy()):
    row = {name: keys[number][0] for name, keys in rows.items()}
    print(f"{row}: {probability:.3f}")
