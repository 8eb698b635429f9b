"""A whole training step over N ranks in plain NumPy and float64: what results are compared with.

The model: embeddings of fields, concatenated -> dense layers with ReLU -> a logit -> binary
cross-entropy. Dense gradients are averaged over ranks, each weighing as many samples as it has;
sparse ones are summed by key and divided as the reduction says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tfhybrid.core import native

Keys = Mapping[str, np.ndarray]  # feature -> int64 [batch, length]
Batch = tuple[Keys, np.ndarray]  # keys and labels [batch] of one rank


@dataclasses.dataclass(frozen=True)
class SGD:
    """Plain gradient descent. Its siblings have the same interface."""

    learning_rate: float
    slots: tuple[float, ...] = ()  # initial values of the state

    def update(self, weight: np.ndarray, gradient: np.ndarray, state: np.ndarray, step: int):
        weight -= self.learning_rate * gradient


@dataclasses.dataclass(frozen=True)
class Adagrad:
    learning_rate: float
    slots: tuple[float, ...] = (0.1,)
    epsilon: float = 1e-7

    def update(self, weight: np.ndarray, gradient: np.ndarray, state: np.ndarray, step: int):
        state[0] += gradient**2
        weight -= self.learning_rate * gradient / np.sqrt(state[0] + self.epsilon)


@dataclasses.dataclass(frozen=True)
class Adam:
    learning_rate: float
    slots: tuple[float, ...] = (0.0, 0.0)
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    def update(self, weight: np.ndarray, gradient: np.ndarray, state: np.ndarray, step: int):
        state[0] += (gradient - state[0]) * (1 - self.beta_1)
        state[1] += (gradient**2 - state[1]) * (1 - self.beta_2)
        rate = self.learning_rate * np.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        weight -= rate * state[0] / (np.sqrt(self.velocity(state)) + self.epsilon)

    def velocity(self, state: np.ndarray) -> np.ndarray:
        return state[1]


@dataclasses.dataclass(frozen=True)
class Amsgrad(Adam):
    slots: tuple[float, ...] = (0.0, 0.0, 0.0)

    def velocity(self, state: np.ndarray) -> np.ndarray:
        state[2] = np.maximum(state[2], state[1])
        return state[2]


@dataclasses.dataclass(frozen=True)
class Momentum:
    learning_rate: float
    slots: tuple[float, ...] = (0.0,)
    momentum: float = 0.9
    nesterov: bool = False

    def update(self, weight: np.ndarray, gradient: np.ndarray, state: np.ndarray, step: int):
        state[0] = self.momentum * state[0] - self.learning_rate * gradient
        ahead = self.momentum * state[0] - self.learning_rate * gradient
        weight += ahead if self.nesterov else state[0]


@dataclasses.dataclass(frozen=True)
class RowAdagrad(Adagrad):
    """Its accumulator is the same number for the whole row."""

    def update(self, weight: np.ndarray, gradient: np.ndarray, state: np.ndarray, step: int):
        state[0] += np.mean(gradient**2)
        weight -= self.learning_rate * gradient / (np.sqrt(state[0]) + self.epsilon)


@dataclasses.dataclass(frozen=True)
class RMSprop:
    learning_rate: float
    slots: tuple[float, ...] = (0.0, 0.0, 0.0)
    rho: float = 0.9
    momentum: float = 0.5
    epsilon: float = 1e-3

    def update(self, weight: np.ndarray, gradient: np.ndarray, state: np.ndarray, step: int):
        """Centered, with momentum."""
        state[0] = self.rho * state[0] + (1 - self.rho) * gradient**2
        state[1] = self.rho * state[1] + (1 - self.rho) * gradient
        along = self.learning_rate * gradient / np.sqrt(state[0] - state[1] ** 2 + self.epsilon)
        state[2] = self.momentum * state[2] + along
        weight -= state[2]


@dataclasses.dataclass(frozen=True)
class Ftrl:
    learning_rate: float
    slots: tuple[float, ...] = (0.1, 0.0)
    l1: float = 0.001
    l2: float = 0.01

    def update(self, weight: np.ndarray, gradient: np.ndarray, state: np.ndarray, step: int):
        squares = state[0] + gradient**2
        sigma = (np.sqrt(squares) - np.sqrt(state[0])) / self.learning_rate
        state[0], state[1] = squares, state[1] + gradient - sigma * weight
        quadratic = np.sqrt(squares) / self.learning_rate + 2 * self.l2
        weight[...] = (np.clip(state[1], -self.l1, self.l1) - state[1]) / quadratic


Optimizer = SGD | Adagrad | Adam | Momentum | RMSprop | Ftrl


def initial_state(optimizer: Optimizer, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the state of a fresh weight: `[slots, *shape]`."""
    slots = np.array(optimizer.slots).reshape(-1, *[1] * len(shape))
    return np.zeros((len(slots), *shape)) + slots


class Table:
    """Rows by key; a row is made when it is first updated.

    Args:
        name: Name of the table, of which its initial values depend.
        config: Its `tfhybrid.TableConfig`.
        optimizer: What updates it; a row that a step does not touch stays as it is, but for decay.
        seed: Seed of the job.
        weight_decay: At every step all weights, those of keys without a row too, lose this times
            the learning rate of themselves.
        penalties: L1 and L2 of the rows of each step.
        lazy: Whether a step updates the rows of its keys alone.
    """

    def __init__(
        self,
        name: str,
        config,
        optimizer: Optimizer,
        seed: int = 0,
        *,
        weight_decay: float = 0.0,
        penalties: tuple[float, float] = (0.0, 0.0),
        lazy: bool = True,
    ) -> None:
        self.dim = config.dim
        self.step = 0
        self._weight_decay = weight_decay
        self._penalties = penalties
        self._lazy = lazy
        self._decay = 1.0  # of initial values
        self.rows: dict[int, np.ndarray] = {}
        self._states: dict[int, np.ndarray] = {}
        self._optimizer = optimizer
        self._initializer = (*config.initializer.native, native.table_seed(seed, name))

    def lookup(self, keys: np.ndarray) -> np.ndarray:
        """Returns `keys.shape + (dim,)`."""
        initial = native.initial_rows(*self._initializer, keys.ravel(), self.dim) * self._decay
        rows = [
            self.rows.get(key, row) for key, row in zip(keys.ravel().tolist(), initial, strict=True)
        ]
        return np.array(rows, np.float64).reshape(*keys.shape, self.dim)

    def penalized(self, gradients: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Returns the reduced gradient of each key with that of the penalties."""
        l1, l2 = self._penalties
        if not self._lazy:
            gradients = {key: np.zeros(self.dim) for key in self.rows} | dict(gradients)
        rows = {key: self.lookup(np.array(key)) for key in gradients}
        return {
            key: gradient + l1 * np.sign(rows[key]) + 2 * l2 * rows[key]
            for key, gradient in gradients.items()
        }

    def update(self, gradients: Mapping[int, np.ndarray]) -> None:
        """Applies the gradient of each key."""
        self.step += 1
        shrinkage = self._optimizer.learning_rate * self._weight_decay
        self._decay *= 1 - shrinkage
        for row in self.rows.values():
            row *= 1 - shrinkage
        for key, gradient in gradients.items():
            row = self.rows.setdefault(key, self.lookup(np.array(key)))
            if key not in self._states:
                self._states[key] = initial_state(self._optimizer, row.shape)
            self._optimizer.update(row, gradient, self._states[key], self.step)


def reduce(
    ranks: Sequence[Mapping[int, np.ndarray]], samples: Sequence[int], reduction: str
) -> dict[int, np.ndarray]:
    """Returns each key's gradient, summed over ranks and divided.

    Args:
        ranks: Gradients by key of each rank.
        samples: Of each rank.
        reduction: `"frequency"`, `"mean"` or `"sum"`.
    """
    reduced = {}
    for key in sorted(set().union(*ranks)):
        holders = [rank for rank, gradients in enumerate(ranks) if key in gradients]
        weights = [samples[rank] if reduction == "mean" else 1 for rank in holders]
        total = sum(
            weight * ranks[rank][key] for rank, weight in zip(holders, weights, strict=True)
        )
        divisor = {"frequency": len(holders), "mean": sum(samples), "sum": 1}[reduction]
        reduced[key] = total / divisor
    return reduced


def clip(kind: str, limit: float, gradients: Sequence[Sequence[np.ndarray]]) -> None:
    """Clips gradients in place.

    Args:
        kind: `"value"`, `"norm"` or `"global_norm"`.
        limit: To what.
        gradients: Of each variable: of a table those of all keys, of a dense one the only one.
    """
    if kind == "value":
        for part in (part for parts in gradients for part in parts):
            np.clip(part, -limit, limit, out=part)
        return
    groups = gradients if kind == "norm" else [[part for parts in gradients for part in parts]]
    for parts in groups:
        norm = np.sqrt(sum(np.sum(part**2) for part in parts))
        for part in parts:
            part *= min(1.0, limit / norm) if norm else 1.0


def sum_by_key(keys: np.ndarray, gradients: np.ndarray) -> dict[int, np.ndarray]:
    """Returns one rank's gradient of each of its keys."""
    unique, inverse = np.unique(keys.ravel(), return_inverse=True)
    sums = np.zeros((len(unique), gradients.shape[-1]))
    np.add.at(sums, inverse.ravel(), gradients.reshape(-1, gradients.shape[-1]))
    return dict(zip(unique.tolist(), sums, strict=True))


class Trainer:
    """The model, and its training by all ranks together.

    Args:
        fields: Feature and table of each embedding, in the order of concatenation. A feature or a
            table may come more than once.
        tables: The tables by name.
        dense: Kernel and bias of each dense layer, in turn.
        dense_optimizer: What updates these.
        reduction: `"frequency"`, `"mean"` or `"sum"`.
        frozen: Names of tables that stay as they are.
        mean_loss: Whether the loss of a rank is the mean over its samples, or their sum.
        weight_decay: Of the dense weights.
        clipping: What of the gradients is clipped, `"value"`, `"norm"` or `"global_norm"`, and to
            what.
    """

    def __init__(
        self,
        fields: Sequence[tuple[str, str]],
        tables: Mapping[str, Table],
        dense: Sequence[np.ndarray],
        dense_optimizer: Optimizer,
        *,
        reduction: str = "frequency",
        frozen: Sequence[str] = (),
        mean_loss: bool = True,
        weight_decay: float = 0.0,
        clipping: tuple[str, float] | None = None,
    ) -> None:
        self.fields = fields
        self.tables = tables
        self.dense = [np.array(weight, np.float64) for weight in dense]
        self._states = [initial_state(dense_optimizer, weight.shape) for weight in self.dense]
        self._optimizer = dense_optimizer
        self._reduction = reduction
        self._trained = {name: table for name, table in tables.items() if name not in frozen}
        self._mean_loss = mean_loss
        self._shrinkage = dense_optimizer.learning_rate * weight_decay
        self._clipping = clipping
        self._step = 0

    def step(self, batches: Sequence[Batch]) -> list[float]:
        """Trains on one batch per rank that has one; returns the loss of each rank."""
        results = [self._gradients(keys, labels) for keys, labels in batches]
        self._apply([r[1:] for r in results], [len(labels) for _, labels in batches])
        return [loss for loss, _, _ in results]

    def step_of_micro_batches(self, ranks: Sequence[Sequence[Batch]]) -> None:
        """Trains on several batches per rank, whose gradients are summed."""
        results, samples = [], []
        for batches in ranks:
            parts = [self._gradients(keys, labels)[1:] for keys, labels in batches]
            dense = [
                np.sum(gradients, axis=0) for gradients in zip(*(d for d, _ in parts), strict=True)
            ]
            sparse = {
                name: {
                    key: sum(s[name][key] for _, s in parts if key in s[name])
                    for key in sorted(set().union(*(s[name] for _, s in parts)))
                }
                for name in self.tables
            }
            results.append((dense, sparse))
            samples.append(round(sum(len(labels) for _, labels in batches) / len(batches)))
        self._apply(results, samples)

    def _apply(self, results, samples: Sequence[int]) -> None:
        self._step += 1
        if not sum(samples):
            return  # counted, but nothing is applied
        sparse = {
            name: table.penalized(
                reduce([sparse[name] for _, sparse in results], samples, self._reduction)
            )
            for name, table in self._trained.items()
        }
        dense = [
            np.average([dense[index] for dense, _ in results], axis=0, weights=samples)
            for index in range(len(self.dense))
        ]
        if self._clipping is not None:
            tables = [list(gradients.values()) for gradients in sparse.values()]
            clip(*self._clipping, [*tables, *([gradient] for gradient in dense)])
        for name, table in self._trained.items():
            table.update(sparse[name])
        for weight, gradient, state in zip(self.dense, dense, self._states, strict=True):
            weight *= 1 - self._shrinkage
            self._optimizer.update(weight, gradient, state, self._step)

    def _gradients(self, keys: Keys, labels: np.ndarray):
        """Returns the loss, the dense gradients, and the sparse ones by table and key."""
        embeddings = [self.tables[table].lookup(keys[feature]) for feature, table in self.fields]
        widths = [e.shape[1] * e.shape[2] for e in embeddings]
        parts = [e.reshape(-1, width) for e, width in zip(embeddings, widths, strict=True)]
        x = np.concatenate(parts, axis=1)
        activations = [x]
        layers = list(zip(self.dense[::2], self.dense[1::2], strict=True))
        for index, (kernel, bias) in enumerate(layers):
            x = x @ kernel + bias
            x = np.maximum(x, 0) if index < len(layers) - 1 else x
            activations.append(x)
        logits = x[:, 0]
        losses = np.logaddexp(0, logits) - labels * logits
        samples = len(labels) if self._mean_loss else 1
        upstream = ((1 / (1 + np.exp(-logits)) - labels) / samples)[:, np.newaxis]
        dense: list[np.ndarray] = []
        for (kernel, _), x in zip(reversed(layers), reversed(activations[:-1]), strict=True):
            dense = [x.T @ upstream, upstream.sum(axis=0), *dense]
            upstream = upstream @ kernel.T
            upstream = upstream * (x > 0) if x is not activations[0] else upstream
        parts = np.split(upstream, np.cumsum(widths)[:-1], axis=1)
        return losses.sum() / samples, dense, self._sparse(keys, parts)

    def _sparse(self, keys: Keys, parts: Sequence[np.ndarray]):
        """Returns by table and key the gradients that the parts, one per field, add up to."""
        pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in self.tables}
        for (feature, table), part in zip(self.fields, parts, strict=True):
            pairs[table].append((keys[feature].ravel(), part.reshape(-1, self.tables[table].dim)))
        return {
            name: sum_by_key(*(np.concatenate(column) for column in zip(*pair, strict=True)))
            for name, pair in pairs.items()
        }
