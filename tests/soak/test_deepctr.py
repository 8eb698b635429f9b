"""DeepCTR's models with our lookup in place of Keras's layer: losses, checkpoints, exports.

Needs DeepCTR's repository at commit 1b5fe40 (the wheel 0.9.4 is older) and `requests`. When it is
imported, DeepCTR asks the package index for newer versions of itself:
`PYTHONPATH=DeepCTR scripts/test soak -- tests/soak/test_deepctr.py -v -rs`. What DeepCTR cannot run
on Keras 3 is run with TF_USE_LEGACY_KERAS=1. The results are in docs/other_models.md.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid import checkpoint, export
from tfhybrid._keras import IS_KERAS_3
from tfhybrid.layers import Embedding

models = pytest.importorskip("deepctr.models", reason="DeepCTR is missing: see above")
features = importlib.import_module("deepctr.feature_column")
# The modules that make embeddings.
PLACES = [
    importlib.import_module(f"deepctr.{name}")
    for name in ("inputs", "models.onn", "models.sequence.dsin")
]

DIM, SAMPLES, STEPS, LONGEST = 4, 64, 3, 4
KEYS = {"user": 50, "item": 30, "category": 10, "city": 10}
BEHAVIORS = ["item", "category"]
WITHOUT_NUMBERS = {"AFM", "CCPM", "EDCN"}
OPTIONS: dict[str, dict[str, Any]] = {
    "BST": {"att_head_num": 4},
    "DSIN": {"sess_max_count": 2},
    "FGCNN": {
        "conv_kernel_width": (3, 2),
        "conv_filters": (2, 1),
        "new_maps": (2, 2),
        "pooling_width": (2, 2),
    },
}


class MaskedEmbedding(Embedding):
    """With Keras 2, which has no `Embedding.like_keras`: key 0 is masked, but has a row."""

    def __init__(self, keys: int, dim: int, *, name: str, mask_zero: bool = False, **_: Any):
        super().__init__(tfhybrid.TableConfig(dim), name=name)
        self.supports_masking = mask_zero

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        return tf.not_equal(inputs, 0) if self.supports_masking else None


def columns_of(name: str) -> list[Any]:
    """Returns the features that a model reads: fields, a number, and lists where it has them."""

    def lists(prefix: str, names: list[str], **options: Any) -> list[Any]:
        fields = [
            features.SparseFeat(prefix + of, KEYS[of], DIM, embedding_name=of) for of in names
        ]
        return [features.VarLenSparseFeat(field, LONGEST, **options) for field in fields]

    fields = [features.SparseFeat(each, KEYS[each], DIM) for each in ("user", *BEHAVIORS)]
    price = features.DenseFeat("price")
    parameters = inspect.signature(getattr(models, name)).parameters
    if "history_feature_list" in parameters:
        return [*fields, price, *lists("hist_", BEHAVIORS, length_name="seq_length")]
    if "sess_feature_list" in parameters:
        return [*fields, price, *lists("sess_0_", BEHAVIORS), *lists("sess_1_", BEHAVIORS)]
    fields.append(features.SparseFeat("city", KEYS["city"], DIM, group_name="place"))
    fields += [features.VarLenSparseFeat(features.SparseFeat("tags", 20, DIM), LONGEST)]
    return fields if name in WITHOUT_NUMBERS else [*fields, price]


def samples_of(columns: list[Any]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    lengths = random.integers(1, LONGEST + 1, (SAMPLES, 1))
    sessions = random.integers(1, 3, (SAMPLES, 1))
    samples = {"seq_length": lengths.astype(np.int32), "sess_length": sessions.astype(np.int32)}
    for column in columns:
        if isinstance(column, features.DenseFeat):
            samples[column.name] = random.random((SAMPLES, 1), np.float32)
            continue
        length = getattr(column, "maxlen", 1)
        keys = random.integers(1, column.vocabulary_size, (SAMPLES, length))
        samples[column.name] = np.where(np.arange(length) < lengths, keys, 0).astype(np.int32)
    return samples


def compiled(name: str, columns: list[Any], optimizer: Any) -> keras.Model:
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    make = getattr(models, name)
    options = dict(OPTIONS.get(name, {}))
    for parameter in inspect.signature(make).parameters:
        if parameter.startswith("l2_reg"):  # ours is that of a step's keys
            options[parameter] = 0
        if parameter.startswith(("linear", "dnn", "region")) and parameter.endswith("columns"):
            options[parameter] = columns
        if parameter in ("history_feature_list", "sess_feature_list"):
            options[parameter] = BEHAVIORS
    model = make(**options)
    model.compile(optimizer, "binary_crossentropy")
    model.predict(samples_of(columns), verbose=0)  # some layers are built by their first call
    return model


def train(model: keras.Model, samples: dict[str, np.ndarray]) -> list[float]:
    clicks = (np.arange(SAMPLES)[:, np.newaxis] % 3 == 0).astype(np.float32)
    labels = [clicks] * len(model.outputs) if len(model.outputs) > 1 else clicks
    options = {"batch_size": SAMPLES, "epochs": STEPS, "shuffle": False, "verbose": 0}
    return model.fit(samples, labels, **options).history["loss"]


def dense_layers(model: keras.Model) -> list[keras.layers.Layer]:
    embeddings = (keras.layers.Embedding, Embedding)
    return [layer for layer in model.layers if layer.weights and not isinstance(layer, embeddings)]


def copy_weights(source: keras.Model, target: keras.Model) -> None:
    for theirs, ours in zip(dense_layers(source), dense_layers(target), strict=True):
        ours.set_weights(theirs.get_weights())
    for layer in target.layers:
        if isinstance(layer, Embedding):
            (rows,) = source.get_layer(layer.name).get_weights()
            layer.table.load(checkpoint.ArrayRows(np.arange(len(rows)), rows))


def served(model: keras.Model, path: Path, samples: dict[str, np.ndarray]) -> list[tf.Tensor]:
    folder = export.saved_model(model, path / "exported")
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    inputs = serve.structured_input_signature[1]
    outputs = serve(**{key: tf.cast(samples[key], spec.dtype) for key, spec in inputs.items()})
    return [outputs[f"output_{number}"] for number in range(len(outputs))]


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("name", sorted(set(models.__all__)))
def test_a_model_learns_as_with_the_layer_of_keras(name, monkeypatch, tmp_path: Path) -> None:
    columns = columns_of(name)
    samples = samples_of(columns)
    try:
        reference = compiled(name, columns, keras.optimizers.SGD(0.1))
    except Exception as error:
        pytest.skip(f"DeepCTR's own code fails: {error}")
    for place in PLACES:
        monkeypatch.setattr(
            place, "Embedding", Embedding.like_keras if IS_KERAS_3 else MaskedEmbedding
        )

    def ours() -> keras.Model:
        optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1))
        return compiled(name, columns, optimizer)

    model = ours()
    copy_weights(reference, model)
    np.testing.assert_allclose(train(model, samples), train(reference, samples), rtol=1e-6)
    predictions = tf.nest.flatten(model.predict(samples, verbose=0))
    checkpoint.save(model, tmp_path / "saved", tfhybrid.data.Position(1, 0))
    for one, other in zip(predictions, served(model, tmp_path, samples), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)

    tfhybrid.shutdown()
    tfhybrid.init()
    restored = ours()
    checkpoint.restore(restored, tmp_path / "saved")
    again = tf.nest.flatten(restored.predict(samples, verbose=0))
    for one, other in zip(predictions, again, strict=True):
        np.testing.assert_array_equal(one, other)
