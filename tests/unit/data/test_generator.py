from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tests.support.reference.ranking import pairwise_auc
from tfhybrid.data import ClickLog, IdSpace
from tfhybrid.errors import ConfigError
from tfhybrid.metrics import auc

SPACES = {"user": IdSpace(10**6), "item": IdSpace(10**4, 1.1), "city": IdSpace(100, 1.4)}


def log(seed=3, **options):
    return ClickLog(SPACES, seed=seed, **options)


def test_a_sample_is_a_function_of_its_number():
    whole = log().clicks(0, 50_000)
    part = log().clicks(16_000, 20_000)

    for name, keys in part.features.items():
        np.testing.assert_array_equal(keys, whole.features[name][16_000:36_000])
    np.testing.assert_array_equal(part.label, whole.label[16_000:36_000])
    np.testing.assert_array_equal(log().probabilities(100, 7), log().probabilities(0, 200)[100:107])
    assert len(log().clicks(5, 0)) == 0


def test_seeds_and_features_are_independent():
    same = ClickLog({"a": 1000, "b": 1000}, seed=1).clicks(0, 1000)
    other = ClickLog({"a": 1000, "b": 1000}, seed=2).clicks(0, 1000)

    assert (same.features["a"] == same.features["b"]).mean() < 0.05
    assert (same.features["a"] == other.features["a"]).mean() < 0.05


@pytest.mark.parametrize("exponent", [0.0, 0.75, 1.0, 1.2, 2.0])
@pytest.mark.parametrize("keys", [1, 1000, 10**8])
def test_popularity_ranks_follow_the_curve(exponent, keys):
    space, samples = IdSpace(keys, exponent), 100_000
    ranks = space.popularity_ranks((np.arange(samples) + 0.5) / samples)
    first = np.arange(min(keys, 1000))
    counts = np.bincount(ranks[ranks < len(first)], minlength=len(first))

    assert 0 <= ranks.min() <= ranks.max() < keys
    np.testing.assert_allclose(counts, space.probability(first) * samples, atol=1.01)


def test_ids_occur_as_often_as_the_curve_says():
    space, samples = IdSpace(10**6, 1.2), 200_000
    keys = ClickLog({"user": space}, seed=4).clicks(0, samples).features["user"]
    _, counts = np.unique(keys, return_counts=True)
    expected = space.probability(np.arange(10)) * samples

    np.testing.assert_allclose(np.sort(counts)[:-11:-1], expected, rtol=0.05)


def test_each_popularity_rank_has_a_key_of_its_own():
    keys = ClickLog({"user": IdSpace(97, 0.0)}, seed=1).clicks(0, 20_000).features["user"]

    assert np.unique(keys).tolist() == list(range(97))


@pytest.mark.parametrize("rate", [0.05, 0.25, 0.5])
def test_the_positive_rate_is_as_asked(rate):
    generated = log(positive_rate=rate)

    assert generated.probabilities(0, 200_000).mean() == pytest.approx(rate, rel=0.03)
    assert generated.clicks(0, 200_000).label.mean() == pytest.approx(rate, rel=0.04)


def test_the_best_auc_is_that_of_the_true_probabilities():
    drawn = pairwise_auc(log().clicks(0, 5_000).label, log().probabilities(0, 5_000))
    assert log().best_auc(5_000).drawn == pytest.approx(drawn, abs=1e-12)

    best = log().best_auc(50_000)
    assert best.expected == pytest.approx(best.drawn, abs=0.008)
    assert 0.79 < best.expected < 0.83


def test_a_wider_spread_of_logits_can_be_told_apart_better():
    expected = [log(logit_std=std).best_auc(50_000).expected for std in (0.8, 1.4, 2.0)]

    np.testing.assert_allclose(expected, [0.706, 0.808, 0.871], atol=0.01)


def test_interactions_carry_signal_that_biases_do_not():
    """The best additive model of two small features stays well below the best model."""
    generated = ClickLog({"a": IdSpace(20, 0.0), "b": IdSpace(20, 0.0)}, seed=5)
    clicks, chances = generated.clicks(0, 200_000), generated.probabilities(0, 200_000)
    logits = np.zeros((20, 20))
    logits[clicks.features["a"], clicks.features["b"]] = np.log(chances / (1 - chances))
    additive = logits.mean(0, keepdims=True) + logits.mean(1, keepdims=True)
    scores = additive[clicks.features["a"], clicks.features["b"]]

    best = generated.best_auc(200_000).drawn
    assert auc(clicks.label, scores) < best - 0.03


def test_drift_brings_ids_never_seen_before_at_a_steady_rate():
    generated = ClickLog({"user": IdSpace(1000, 0.5, drift=1e-4)}, seed=6)
    windows = [
        set(generated.clicks(start, 5000).features["user"].tolist())
        for start in range(0, 50_000, 5000)
    ]
    seen, fresh = set(windows[0]), []
    for window in windows[1:]:
        fresh.append(len(window - seen))
        seen |= window

    # In 5,000 samples half of the 1,000 places change hands.
    assert all(300 < count < 600 for count in fresh)
    assert windows[0].isdisjoint(windows[-1])


def test_a_hundred_million_keys_need_memory_for_the_samples_only():
    spaces = {f"feature{i}": IdSpace(10**8, 1.05) for i in range(4)}
    tracemalloc.start()
    clicks = ClickLog(spaces, seed=7).clicks(10**9, 100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 64e6
    for keys in clicks.features.values():
        assert 0 <= keys.min() < 10**6
        assert 10**8 - 10**6 < keys.max() < 10**8


@pytest.mark.parametrize(
    "make",
    [
        lambda: IdSpace(0),
        lambda: IdSpace(2**31 + 1),
        lambda: IdSpace(10, exponent=-0.1),
        lambda: IdSpace(10, drift=1.5),
        lambda: ClickLog({}, seed=1),
        lambda: log(latent_dim=6),
        lambda: log(positive_rate=1.0),
        lambda: log(logit_std=0.0),
    ],
)
def test_what_can_never_work_is_refused(make):
    with pytest.raises(ConfigError, match="Received: "):
        make()
