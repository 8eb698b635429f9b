"""Evaluation over the samples of all ranks, here on one rank."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from tests.support.reference.ranking import pairwise_auc, plain_log_loss
from tfhybrid.errors import DataError
from tfhybrid.metrics import calibration, evaluate, gauc, normalized_entropy


@pytest.fixture
def identity() -> keras.Model:
    """A model whose output is its input."""
    inputs = keras.Input((1,))
    return keras.Model(inputs, keras.layers.Identity()(inputs))


def batches(*columns: np.ndarray) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(columns).batch(32)


@pytest.fixture
def logits() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 3, (100, 1)).astype(np.float32)


@pytest.fixture
def labels(logits: np.ndarray) -> np.ndarray:
    return (logits + np.random.default_rng(1).normal(0, 3, logits.shape) > 0).astype(np.float32)


def test_logits_are_scored_as_their_probabilities(identity, logits, labels) -> None:
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    scores = evaluate(identity, batches(logits, labels))
    assert scores["auc"] == pytest.approx(pairwise_auc(labels[:, 0], logits[:, 0]), abs=1e-6)
    assert scores["log_loss"] == pytest.approx(plain_log_loss(labels, probabilities), abs=1e-6)
    assert scores["samples"] == 100


def test_probabilities_are_taken_as_they_are(identity, logits, labels) -> None:
    probabilities = 1 / (1 + np.exp(-logits))
    scores = evaluate(identity, batches(probabilities, labels), from_logits=False)
    assert scores["log_loss"] == pytest.approx(plain_log_loss(labels, probabilities), abs=1e-6)


def test_sample_weights_count(identity, logits, labels) -> None:
    weights = np.random.default_rng(2).random(100).astype(np.float32)
    scores = evaluate(identity, batches(logits, labels, weights))
    expected = pairwise_auc(labels[:, 0], logits[:, 0], weights)
    assert scores["auc"] == pytest.approx(expected, abs=1e-6)


def test_users_are_ranked_among_themselves(logits, labels) -> None:
    inputs = {name: keras.Input((1,), name=name) for name in ("user", "logit")}
    model = keras.Model(inputs, keras.layers.Identity()(inputs["logit"]))
    users = np.random.default_rng(3).integers(-(2**62), 2**62, 7)[np.arange(100) % 7]
    data = tf.data.Dataset.from_tensor_slices(({"user": users, "logit": logits}, labels)).batch(32)
    scores = evaluate(model, data, group="user")
    assert scores["gauc"] == pytest.approx(gauc(users, labels, logits), abs=1e-12)
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert scores["calibration"] == pytest.approx(calibration(labels, probabilities), abs=1e-6)
    expected = normalized_entropy(labels, probabilities)
    assert scores["normalized_entropy"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("group", ["item", "logit"])
def test_a_group_that_is_no_feature_of_keys_is_refused(logits, labels, group) -> None:
    inputs = {"logit": keras.Input((1,), name="logit")}
    model = keras.Model(inputs, keras.layers.Identity()(inputs["logit"]))
    data = tf.data.Dataset.from_tensor_slices(({"logit": logits}, labels)).batch(32)
    with pytest.raises(DataError, match=rf"one integer key per sample. Received: group='{group}'"):
        evaluate(model, data, group=group)


def test_steps_bound_an_endless_dataset(identity, logits, labels) -> None:
    assert evaluate(identity, batches(logits, labels).repeat(), steps=2)["samples"] == 64


def test_large_logits_give_finite_loss(identity) -> None:
    logits = np.array([[-900.0], [900.0]], np.float32)
    assert evaluate(identity, batches(logits, np.array([1, 0])))["log_loss"] > 30


def test_no_sample_on_any_rank_is_an_error(identity) -> None:
    with pytest.raises(DataError, match="at least one sample"):
        evaluate(identity, [])


def test_a_diverged_model_is_an_error(identity) -> None:
    with pytest.raises(DataError, match="finite"):
        evaluate(identity, batches(np.array([[np.nan], [1.0]]), np.array([0, 1])))


HEADS = ("click", "buy")


def two_heads(kind: str) -> keras.Model:
    inputs = keras.Input((2,))
    outputs = [
        keras.layers.Lambda(lambda x, i=i: x[:, i : i + 1], output_shape=(1,), name=name)(inputs)
        for i, name in enumerate(HEADS)
    ]
    named = dict(zip(HEADS, outputs, strict=True))
    return keras.Model(inputs, named if kind == "dict" else outputs)


def of_heads(kind: str, logits: np.ndarray, labels: np.ndarray, *weights) -> tf.data.Dataset:
    both = (labels, 1 - labels)
    named = dict(zip(HEADS, both, strict=True)) if kind == "dict" else both
    return batches(np.concatenate([logits, logits**2], 1), named, *weights)


@pytest.mark.parametrize("kind", ["dict", "list"])
def test_each_output_is_scored_with_its_label(identity, logits, labels, kind) -> None:
    scores = evaluate(two_heads(kind), of_heads(kind, logits, labels))
    for name, output, label in zip(HEADS, (logits, logits**2), (labels, 1 - labels), strict=True):
        alone = evaluate(identity, batches(output, label))
        assert {metric: scores[f"{name}_{metric}"] for metric in alone} == alone
    assert len(scores) == 2 * len(alone)


def test_outputs_without_a_label_are_left_out(identity, logits, labels) -> None:
    data = batches(np.concatenate([logits, logits], 1), {"buy": labels})
    scores = evaluate(two_heads("dict"), data)
    assert scores["buy_auc"] == evaluate(identity, batches(logits, labels))["auc"]
    assert not any(name.startswith("click") for name in scores)


def test_an_output_may_have_weights_and_be_a_probability(identity, logits, labels) -> None:
    weights = np.arange(100, dtype=np.float32)[:, np.newaxis]
    model = two_heads("dict")
    probabilities = 1 / (1 + np.exp(-logits))
    data = batches(
        np.concatenate([logits, probabilities], 1),
        {"click": labels, "buy": labels},
        {"buy": weights},
    )
    scores = evaluate(model, data, from_logits={"click": True, "buy": False})
    wanted = evaluate(identity, batches(probabilities, labels, weights), from_logits=False)
    assert scores["buy_log_loss"] == wanted["log_loss"]
    assert scores["click_log_loss"] == evaluate(identity, batches(logits, labels))["log_loss"]


@pytest.mark.parametrize(
    ("data", "options", "wanted"),
    [
        (
            lambda x, y: batches(np.concatenate([x, x], 1), y),
            {},
            r"labels \[''\], outputs \['click",
        ),
        (
            lambda x, y: batches(np.concatenate([x, x], 1), {"like": y}),
            {},
            r"labels \['like'\], outputs",
        ),
        (
            lambda x, y: of_heads("dict", x, y),
            {"from_logits": {"click": True}},
            r"not \['buy'\]",
        ),
    ],
)
def test_labels_that_belong_to_no_output_are_refused(logits, labels, data, options, wanted) -> None:
    with pytest.raises(DataError, match=wanted):
        evaluate(two_heads("dict"), data(logits, labels), **options)


def test_the_only_output_of_a_dictionary_takes_a_plain_label(identity, logits, labels) -> None:
    inputs = keras.Input((1,))
    model = keras.Model(inputs, {"click": keras.layers.Identity()(inputs)})
    scores = evaluate(model, batches(logits, labels))
    assert scores["click_auc"] == evaluate(identity, batches(logits, labels))["auc"]
