from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3, variable
from tfhybrid.errors import ConfigError, NotInitializedError, UnsupportedError

pytestmark = pytest.mark.usefixtures("job")

KEYS = np.arange(8)[:, np.newaxis]
LABELS = np.ones((8, 1), np.float32)


def embedding(name: str = "item", **config) -> tfhybrid.layers.Embedding:
    return tfhybrid.layers.Embedding(tfhybrid.TableConfig(1, **config), name=name)


def model_of_tables_only(layer: tfhybrid.layers.Embedding) -> keras.Model:
    inputs = keras.Input((1,), dtype="int64")
    return keras.Model(inputs, keras.layers.Flatten()(layer(inputs)))


def build_for_a_table(dense: keras.optimizers.Optimizer, **config) -> None:
    layer = embedding(**config)
    layer.build()
    tfhybrid.DistributedOptimizer(dense).build(layer.trainable_variables)


def test_it_stays_of_its_class_and_keeps_its_options() -> None:
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.125, beta_1=0.5))
    assert isinstance(optimizer, keras.optimizers.Adam)
    assert type(optimizer).__name__ == "Adam"
    assert float(optimizer.learning_rate) == 0.125
    assert optimizer.beta_1 == 0.5


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        pytest.param(
            {"gradient_accumulation_steps": 2}, "backward_passes_per_step", marks=needs_keras_3
        ),
        ({"use_ema": True}, "leave the tables out"),
        pytest.param({"loss_scale_factor": 8.0}, "mixed_bfloat16", marks=needs_keras_3),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_options_that_leave_tables_out_are_refused(option, instead) -> None:
    with pytest.raises(UnsupportedError, match=f"{next(iter(option))} is not .*{instead}"):
        tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1, **option))


def test_loss_scaling_is_refused() -> None:
    scaled = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD())
    with pytest.raises(UnsupportedError, match="mixed_bfloat16"):
        tfhybrid.DistributedOptimizer(scaled)


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'frequency', 'sum', 'mean'.*Received: 'average'"):
        tfhybrid.DistributedOptimizer("sgd", reduction="average")


def test_an_optimizer_is_wrapped_once_and_new() -> None:
    with pytest.raises(ConfigError, match="neither used nor wrapped"):
        tfhybrid.DistributedOptimizer(tfhybrid.DistributedOptimizer("sgd"))
    used = keras.optimizers.SGD()
    used.apply_gradients([(tf.zeros(1), variable([1.0]))])
    with pytest.raises(ConfigError, match="neither used nor wrapped"):
        tfhybrid.DistributedOptimizer(used)


def test_it_wants_init_first() -> None:
    tfhybrid.shutdown()
    with pytest.raises(NotInitializedError, match=r"tfhybrid\.init\(\)"):
        tfhybrid.DistributedOptimizer("sgd")


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.Lion(),
        keras.optimizers.Ftrl(learning_rate_power=-0.3),
    ],
    ids=["lion", "ftrl_power"],
)
def test_an_optimizer_without_twin_wants_tables_with_their_own(optimizer) -> None:
    with pytest.raises(UnsupportedError, match="TableConfig"):
        build_for_a_table(optimizer)
    build_for_a_table(optimizer, name="other", optimizer="adagrad")


def test_iterations_advance_in_a_model_of_tables_only() -> None:
    layer = embedding()
    model = model_of_tables_only(layer)
    model.compile(tfhybrid.DistributedOptimizer("adagrad"), "mse")
    model.fit(KEYS, LABELS, batch_size=2, verbose=0)
    assert model.optimizer.iterations == 4
    assert layer.table.stats().version == 4
    assert layer.table.stats().rows == 8


def test_an_optimizer_trains_one_model() -> None:
    first = model_of_tables_only(embedding("first"))
    first.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
    first.fit(KEYS, LABELS, verbose=0)
    second = model_of_tables_only(embedding("second"))
    second.compile(first.optimizer, "mse")
    with pytest.raises(ConfigError, match=r"\['second'\]"):
        second.fit(KEYS, LABELS, verbose=0)


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_table_has_one_optimizer_at_a_time(in_graph) -> None:
    layer = embedding("item")
    layer.build()
    slices = tf.IndexedSlices(tf.ones((1, 1)), [3])

    def step_of(optimizer):
        def step() -> None:
            optimizer.apply_gradients(zip([slices], layer.trainable_variables, strict=True))

        return tf.function(step) if in_graph else step

    first = step_of(tfhybrid.DistributedOptimizer(keras.optimizers.Adam()))
    second = step_of(tfhybrid.DistributedOptimizer(keras.optimizers.Adam()))
    first()
    second()
    before = layer.table.lookup([3])
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="Table 'item' is trained by an optimizer that"
    ):
        first()
    second()
    assert layer.table.version == 3
    assert layer.table.lookup([3]) < before


def test_a_model_may_be_compiled_again_with_another_rate() -> None:
    layer = embedding()
    model = model_of_tables_only(layer)
    for rate in (0.5, 0.25):
        model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(rate)), "mse")
        model.fit(KEYS, LABELS, verbose=0)
    assert layer.table.stats().version == 2


def test_a_gradient_may_be_scaled_but_not_densified() -> None:
    layer = embedding(initializer="zeros")
    layer.build()
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(1.0))
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(layer(tf.constant([3])))
    (slices,) = tape.gradient(value, layer.trainable_variables)
    scaled = tf.IndexedSlices(slices.values * 0.5, slices.indices, slices.dense_shape)
    optimizer.apply_gradients(zip([scaled], layer.trainable_variables, strict=True))
    assert layer.table.lookup([3]) == -0.5
    with pytest.raises(UnsupportedError, match=r"table 'item' must be the tf\.IndexedSlices"):
        optimizer.apply_gradients(zip([tf.zeros((0, 1))], layer.trainable_variables, strict=True))


def test_a_table_without_gradient_stays_as_it_is() -> None:
    layers = [embedding("used"), embedding("unused")]
    for layer in layers:
        layer.build()
    variables = [layer.trainable_variables[0] for layer in layers]
    gradient = tf.IndexedSlices(tf.ones((1, 1)), [1])
    tfhybrid.DistributedOptimizer("sgd").apply_gradients(
        zip([gradient, None], variables, strict=True)
    )
    assert [layer.table.stats().version for layer in layers] == [1, 0]


def test_an_eager_step_reaches_the_tables_of_the_running_job() -> None:
    """TensorFlow keeps the kernels of eager ops from one job to the next."""
    for _ in range(2):
        tfhybrid.shutdown()
        tfhybrid.init()
        layer = embedding(initializer="zeros")
        layer.build()
        optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(1.0))
        gradient = tf.IndexedSlices(tf.ones((1, 1)), [3])
        optimizer.apply_gradients(zip([gradient], layer.trainable_variables, strict=True))
        assert layer.table.lookup([3]) == -1.0
        assert layer(tf.constant([3])) == -1.0


@pytest.mark.parametrize("lookups", [1, 2])
def test_keys_are_summed_once_only(lookups: int) -> None:
    """The sums of one lookup are posted as they are; of two, laid end to end, they are not."""
    layer = embedding()
    layer.build()
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(1.0))
    optimizer.build(layer.trainable_variables)

    @tf.function(autograph=False)
    def step(keys: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(layer(keys)) for _ in range(lookups)])
        gradients = tape.gradient(loss, layer.trainable_variables)
        scaled = [tf.IndexedSlices(2.0 * g.values, g.indices, g.dense_shape) for g in gradients]
        optimizer.apply_gradients(zip(scaled, layer.trainable_variables, strict=True))

    keys = tf.constant([5, 7, 5])
    before = layer(keys).numpy()
    step(keys)
    np.testing.assert_allclose(
        layer(keys).numpy(), before - 2.0 * lookups * np.array([[2], [1], [2]]), rtol=1e-6
    )
    graph = step.get_concrete_function(keys).graph
    (post,) = [op for op in graph.get_operations() if op.type == "TfhybridPostGradients"]
    assert post.get_attr("distinct") == [lookups == 1]


def dtypes_of(tensor: tf.Tensor) -> set[tf.DType]:
    """Returns the types of a tensor and of what it is made from: strings are never on a GPU."""
    return {each.dtype for each in [tensor, *tensor.op.inputs]}


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_what_a_step_decides_by_is_copied_from_a_device_once(micro_batches: int) -> None:
    """A graph that is traced for a GPU, which need not be there, shows what leaves it."""
    layer = embedding()
    inputs = keras.Input((1,), dtype="int64")
    outputs = keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs)))
    model = keras.Model(inputs, outputs)
    optimizer = tfhybrid.DistributedOptimizer(
        keras.optimizers.SGD(0.1), backward_passes_per_step=micro_batches
    )
    weights = model.trainable_variables
    optimizer.build(weights)

    @tf.function(autograph=False)
    def step(keys: tf.Tensor) -> None:
        with tf.device("GPU:0"), tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(keys))
            gradients = tape.gradient(loss, weights)
            optimizer.apply_gradients(zip(gradients, weights, strict=True))

    operations = step.get_concrete_function(tf.constant(KEYS)).graph.get_operations()
    conditions = [op.inputs[0].op for op in operations if op.type in {"If", "StatelessIf"}]
    assert conditions
    assert all("CPU" in condition.device for condition in conditions), conditions
    copied = {
        tensor.name
        for op in operations
        if "CPU" in op.device
        for tensor in op.inputs
        if "GPU" in tensor.op.device and not {tf.resource, tf.string} & dtypes_of(tensor)
    }
    assert len(copied) == 1, copied
