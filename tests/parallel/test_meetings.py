"""When ranks meet: once per step, in the order of the program."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model
from tfhybrid.job import current_job

pytestmark = pytest.mark.usefixtures("job")


def compiled(prefix: str = "", **options: Any) -> keras.Model:
    model = click_model.keras_model(prefix=prefix)
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1), **options)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def meetings() -> int:
    now = current_job().engine.standing()
    assert now.begun == now.ended
    return now.begun


@pytest.mark.world_size
def test_ranks_meet_where_gradients_are_exchanged_and_nowhere_else() -> None:
    model = compiled(backward_passes_per_step=2)
    before = meetings()
    for own in click_model.batches(5, tfhybrid.size()):
        keys, labels = own[tfhybrid.rank()]
        model.train_on_batch(keys, labels)
        model.predict_on_batch(keys)
    several = tfhybrid.size() > 1
    assert meetings() - before == (2 if several else 0)
    model.optimizer.join()  # the last micro-batch, and then all have ended
    assert meetings() - before == (4 if several else 0)


def test_steps_of_one_graph_begin_in_the_order_of_the_program() -> None:
    models = [compiled(), *(compiled(of, dense="horovod") for of in ("other_", "third_"))]

    @tf.function
    def step(keys: dict[str, tf.Tensor], labels: tf.Tensor) -> None:
        for model in models:
            with tf.GradientTape() as tape:
                loss = model.compute_loss(y=labels[:, None], y_pred=model(keys))
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            model.optimizer.apply_gradients(zip(gradients, variables, strict=True))

    before = meetings()
    for own in click_model.batches(20, tfhybrid.size()):
        keys, labels = own[tfhybrid.rank()]
        batch = {feature: tf.constant(of) for feature, of in keys.items()}, tf.constant(labels)
        step(*batch)
        engine = current_job().engine
        last = engine.meetings[engine.standing().signature]
        assert last.of == models[2].optimizer.sparse_update.name
    several = tfhybrid.size() > 1
    assert meetings() - before == (60 if several else 0)
    operations = step.get_concrete_function(*batch).graph.get_operations()
    begins, sums = (
        [op for op in operations if op.type == kind]
        for kind in ("TfhybridBeginMeeting", "TfhybridSumOnHost")
    )
    assert (len(begins), len(sums)) == ((3, 1) if several else (0, 0))
    if several:
        assert sums[0].inputs[1].op is begins[0]
        assert sums[0] in begins[1].control_inputs
        assert begins[1] in begins[2].control_inputs
