"""The bound: the same dense tower and gradients down to its embedded input, but no table.

What remains is what no embedding engine can remove: the matrix products, their gradients and, among
several ranks, the allreduce of the dense gradients.
"""

from __future__ import annotations

import argparse

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from benchmarks.step.step import model


def make_step(config: model.StepConfig) -> model.Step:
    """Returns the step of (embedded input, labels)."""
    tower = model.build_tower(config)
    optimizer = keras.optimizers.Adagrad(0.05)
    optimizer.build(tower.trainable_variables)

    @tf.function(autograph=False)
    def step(embedded: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(embedded)
            loss = model.log_loss(labels, tower(embedded))
        weights = tower.trainable_variables
        *dense, embedded_gradient = tape.gradient(loss, [*[w.value for w in weights], embedded])
        # One rank has nothing to sum, and tfhybrid's optimizer then calls no Horovod.
        optimizer.apply(hvd.grouped_allreduce(dense) if hvd.size() > 1 else dense, weights)
        # Returned, or TensorFlow would prune its computation.
        return loss, embedded_gradient

    return lambda embedded, labels: step(embedded, labels)[0]


def main() -> None:
    """Runs this side on every rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    model.add_options(parser)
    config = model.config_of(parser.parse_args())
    hvd.init()
    model.share_threads(hvd.local_size())
    random = np.random.default_rng(hvd.rank())
    values = random.normal(0, 0.05, (config.batch, config.features * config.dim))
    embedded = tf.constant(values, tf.float32)
    model.measure("bound", config, make_step(config), feed=lambda ids: embedded)


if __name__ == "__main__":
    main()
