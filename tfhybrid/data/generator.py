"""A generated click log whose best possible AUC is known from its own probabilities."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tfhybrid.data.hashing import factors, stream_seed, uniforms
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.ragged import Ragged
from tfhybrid.errors import ConfigError
from tfhybrid.metrics.binary import auc

_BLOCK = 16_384  # samples generated at a time: their columns stay in the processor's cache
_CALIBRATION_SAMPLES = 1 << 17
_SCATTER = 2_654_435_761  # a prime above any number of keys


@dataclasses.dataclass(frozen=True)
class IdSpace:
    """The ids of one feature of a generated log, and their frequencies.

    The id of popularity rank r occurs with a probability proportional to the integral of
    x^-exponent over [r, r + 1), r from 1 to `keys`: Zipf's law with the steps between ranks
    smoothed. Fitted to real logs by maximum likelihood, the exponent is 0.6 to 0.8 for users, items
    and addresses (MovieLens 0.71 and 0.78, Frappe 0.77 and 0.61, TalkingData's ips 0.65), and 1.4
    to 1.5 for contexts such as city, country, app or system.

    Args:
        keys: Number of ids alive at a time, up to 2^31.
        exponent: Zipf's exponent, not negative; 0 makes all ids equally frequent. Default 0.75.
        drift: Fraction of the ids replaced per sample, 0 (default) to 1: each id lives for
            1 / drift samples. Then a new id with its own latent factors gets its popularity.

    Raises:
        ConfigError: A number is out of range.
    """

    keys: int
    exponent: float = 0.75
    drift: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.keys <= 2**31 or self.exponent < 0 or not 0 <= self.drift <= 1:
            raise ConfigError(
                "An id space needs keys in [1, 2^31], exponent >= 0 and drift in [0, 1]. "
                f"Received: {self}."
            )

    def popularity_ranks(self, uniform: np.ndarray) -> np.ndarray:
        """Returns the popularity ranks of ids, given their quantiles: int64 of the same shape.

        0 is the rank of the most frequent id. `ClickLog` decides which id has which rank.

        Args:
            uniform: Quantiles of the distribution, floats in [0, 1); not checked. Uniform random
                numbers give ranks with the frequencies of this space.
        """
        power = 1.0 - self.exponent
        top = np.log1p(self.keys)
        if abs(power) * top < 1e-9:
            x = np.exp(uniform * top)
        else:
            x = np.exp(np.log1p(uniform * np.expm1(power * top)) / power)
        return np.clip(x.astype(np.int64) - 1, 0, self.keys - 1)

    def probability(self, ranks: np.ndarray) -> np.ndarray:
        """Returns how frequent the ids of given popularity ranks are, float64 `ranks.shape`.

        Args:
            ranks: Popularity ranks, from 0 (the most frequent id) to `keys - 1`; not checked.

        Returns:
            For each rank, the probability that a sample has the id of this rank.
        """
        power = 1.0 - self.exponent
        ratio = np.log1p(1.0 / (ranks + 1.0))
        if abs(power) * np.log1p(self.keys) < 1e-9:
            return ratio / np.log1p(self.keys)
        return (
            (ranks + 1.0) ** power * np.expm1(power * ratio) / np.expm1(power * np.log1p(self.keys))
        )


class BestAuc(NamedTuple):
    """The AUC of a model that knows each sample's true probability.

    Attributes:
        expected: Mean AUC over all labels that could have been drawn with these probabilities.
        drawn: AUC with the labels that were drawn.
    """

    expected: float
    drawn: float


class ClickLog:
    """An endless click log. Sample i is a pure function of (settings, seed, i).

    Ids follow `IdSpace`. Each id has a bias and a latent vector, both hashed from the key, so even
    10^8 keys take no memory. The logit of a sample is the sum of its biases and of the pairwise
    inner products of its latent vectors (a factorization machine), centered and scaled. The label
    is drawn with the logit's sigmoid as its probability.

    Args:
        features: Ids of each feature; a number stands for `IdSpace(keys=number)`.
        seed: Seed of everything.
        latent_dim: Length of the latent vectors, a multiple of 4. Default 8.
        positive_rate: Mean of the probabilities, in (0, 1). Default 0.25.
        logit_std: Standard deviation of the logits, above 0. The best AUC follows from it: about
            0.7 at 0.8, 0.8 at 1.4 (default), 0.85 at 2.

    Raises:
        ConfigError: There are no features, or a number is out of range.

    Example:

    >>> log = ClickLog({"user": IdSpace(10**8), "item": IdSpace(10**6, drift=1e-6)}, seed=1)
    >>> log.clicks(0, 1000).features["user"].shape
    (1000,)
    >>> 0.7 < log.best_auc(10_000).expected < 0.9
    True
    """

    def __init__(
        self,
        features: Mapping[str, IdSpace | int],
        *,
        seed: int,
        latent_dim: int = 8,
        positive_rate: float = 0.25,
        logit_std: float = 1.4,
    ) -> None:
        self._spaces = {
            name: IdSpace(space) if isinstance(space, int) else space
            for name, space in features.items()
        }
        self._seed = seed
        self._latent_dim = latent_dim
        self._positive_rate = positive_rate
        self._logit_std = logit_std
        if not features or latent_dim < 4 or latent_dim % 4:
            raise ConfigError(
                "A click log needs features and a latent_dim that is a multiple of 4. "
                f"Received: {len(features)} features, latent_dim {latent_dim}."
            )
        if not (0 < positive_rate < 1 and logit_std > 0):
            raise ConfigError(
                "A click log needs positive_rate in (0, 1) and logit_std > 0. "
                f"Received: {positive_rate} and {logit_std}."
            )

    def clicks(self, start: int, count: int) -> Clicks:
        """Returns samples `[start, start + count)`: keys `[count]` of each feature, and labels.

        Without drift a feature's keys are `[0, keys)`, frequent and rare ones mixed. The g-th
        successor of an id has the key of the first one plus g times `keys`.

        Args:
            start: Number of the first sample, from 0.
            count: Number of samples.
        """
        blocks = [self._block(numbers) for numbers in _blocks(start, count)]
        features: dict[str, np.ndarray | Ragged] = {
            name: np.concatenate([keys[name] for keys, _ in blocks]) for name in self._spaces
        }
        chances = np.concatenate([chances for _, chances in blocks])
        return Clicks(features, self._labels(start, chances))

    def probabilities(self, start: int, count: int) -> np.ndarray:
        """Returns the true click probability of samples `[start, start + count)`, float64.

        Args:
            start: Number of the first sample, from 0.
            count: Number of samples.
        """
        return np.concatenate([self._block(numbers)[1] for numbers in _blocks(start, count)])

    def best_auc(self, count: int, start: int = 0) -> BestAuc:
        """Returns the AUC that a perfect model would reach on samples `[start, start + count)`.

        Args:
            count: Number of samples.
            start: Number of the first sample. Default 0.

        Raises:
            DataError: `count` is 0.
        """
        chances = self.probabilities(start, count)
        labels = self._labels(start, chances).astype(np.float64)
        return BestAuc(
            # Each sample counts as positive and as negative, weighted by the probability of each.
            expected=auc(
                np.repeat([1, 0], len(chances)),
                np.tile(chances, 2),
                np.concatenate([chances, 1.0 - chances]),
            ),
            drawn=auc(labels, chances),
        )

    def _block(self, numbers: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
        keys = {name: self._keys(name, numbers) for name in self._spaces}
        scale, intercept = self._calibration
        return keys, _sigmoid(self._scores(keys) * scale + intercept)

    def _keys(self, feature: str, numbers: np.ndarray) -> np.ndarray:
        space = self._spaces[feature]
        uniform = uniforms(stream_seed(self._seed, feature, "ids"), numbers)
        ids = space.popularity_ranks(uniform) * _SCATTER % space.keys
        if space.drift == 0:
            return ids
        # Each id has a phase of its own, so ids are replaced one at a time.
        phases = uniforms(stream_seed(self._seed, feature, "phases"), ids)
        return ids + space.keys * (numbers * space.drift + phases).astype(np.int64)

    def _scores(self, keys: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the sum of biases and interactions, each with about half of the variance."""
        samples = len(next(iter(keys.values())))
        biases, squares = np.zeros((2, samples), np.float32)
        total = np.zeros((samples, self._latent_dim), np.float32)
        for name, column in keys.items():
            biases += factors(stream_seed(self._seed, name, "bias"), column, 4)[:, 0]
            vectors = factors(stream_seed(self._seed, name, "factors"), column, self._latent_dim)
            total += vectors
            squares += np.einsum("ij,ij->i", vectors, vectors)
        pairs = (np.einsum("ij,ij->i", total, total) - squares) / 2
        features = len(keys)
        pair_variance = self._latent_dim * max(features * (features - 1) / 2, 1)
        return biases / np.float32(features**0.5) + pairs / np.float32(pair_variance**0.5)

    def _labels(self, start: int, chances: np.ndarray) -> np.ndarray:
        numbers = np.arange(start, start + len(chances))
        return (uniforms(stream_seed(self._seed, "labels"), numbers) < chances).astype(np.float32)

    @functools.cached_property
    def _calibration(self) -> tuple[float, float]:
        """Scale and intercept that give the first samples the requested spread and mean."""
        scores = np.concatenate(
            [
                self._scores({name: self._keys(name, numbers) for name in self._spaces})
                for numbers in _blocks(0, _CALIBRATION_SAMPLES)
            ]
        ).astype(np.float64)
        scale = self._logit_std / max(scores.std(), 1e-6)
        low, high = -50.0, 50.0
        for _ in range(60):
            middle = (low + high) / 2
            mean = _sigmoid(scores * scale + middle).mean()
            low, high = (middle, high) if mean < self._positive_rate else (low, middle)
        return scale, low


def _blocks(start: int, count: int) -> list[np.ndarray]:
    """Returns the numbers of samples in blocks; one empty block if there are none."""
    numbers = np.arange(start, start + count)
    return np.split(numbers, range(_BLOCK, count, _BLOCK))


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-logits))
