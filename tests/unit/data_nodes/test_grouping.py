"""Batches of one label value each: no sample is lost, and none is changed."""

from __future__ import annotations

import collections
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from tfhybrid.data_nodes.data_streams import Reading
from tfhybrid.data_nodes.elements import RAGGED, SPARSE, Leaf
from tfhybrid.data_nodes.grouping import LABEL, by_label
from tfhybrid.errors import ConfigError

BATCHES = strategies.lists(strategies.lists(strategies.integers(0, 3), max_size=9), max_size=6)


def element(labels: list[int], first: int, seed: int) -> tuple[dict[str, Any], np.ndarray]:
    """A batch with a tensor of each kind, of which each sample's rows tell its number."""
    random = np.random.default_rng(seed)
    numbers = np.arange(first, first + len(labels))
    inner = random.integers(0, 3, len(labels))
    outer = np.concatenate([[0], np.cumsum(inner)]).astype(np.int64)
    lengths = random.integers(0, 4, outer[-1])
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    columns = random.integers(0, 5, len(labels))
    indices = np.column_stack([np.arange(len(labels)), columns]).astype(np.int64)
    features = {
        "dense": np.column_stack([numbers, numbers * 2.0]),
        "ragged": Leaf(RAGGED, np.repeat(np.repeat(numbers, inner), lengths), (outer, splits)),
        "sparse": Leaf(SPARSE, numbers, (indices, np.array([len(labels), 5 + seed]))),
    }
    return features, np.array(labels, np.float32)


def samples(elements: Any) -> dict[int, tuple[Any, ...]]:
    """What each sample has, by its number."""
    found = {}
    for features, labels in elements:
        leaves = {name: Leaf.of(tensor) for name, tensor in features.items()}
        outer, splits = leaves["ragged"].parts
        indices, _ = leaves["sparse"].parts
        for row, label in enumerate(Leaf.of(labels).values):
            bags = [
                tuple(leaves["ragged"].values[splits[bag] : splits[bag + 1]])
                for bag in range(outer[row], outer[row + 1])
            ]
            where = indices[:, 0] == row
            cells = (*leaves["sparse"].values[where], *indices[where, 1])
            number = int(leaves["dense"].values[row, 0])
            assert number not in found
            found[number] = (tuple(leaves["dense"].values[row]), bags, cells, float(label))
    return found


@hypothesis.given(BATCHES)
def test_no_sample_is_lost_and_no_batch_is_empty_or_mixed(batches: list[list[int]]) -> None:
    firsts = np.concatenate([[0], np.cumsum([len(labels) for labels in batches])]).astype(int)
    elements = [
        element(labels, int(first), seed)
        for seed, (labels, first) in enumerate(zip(batches, firsts, strict=False))
    ]
    grouped = list(by_label(elements))
    assert samples(grouped) == samples(elements)
    size = next((len(labels) for labels in batches if labels), 0)
    counts = collections.defaultdict(list)
    for features, labels in grouped:
        assert len(set(labels.values)) == 1
        counts[labels.values[0]].append(len(labels.values))
        numbers = features["dense"].values[:, 0]
        assert list(numbers) == sorted(numbers)
    for of_value in counts.values():
        assert of_value[:-1] == [size] * (len(of_value) - 1)
        assert 0 < of_value[-1] <= size


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"ad": np.arange(3)}, "tuples of features and labels"),
        (({"ad": np.arange(3)}, np.zeros((3, 2))), r"labels of shape \(3, 2\)"),
        (({"ad": np.arange(3)}, np.zeros(2)), r"tensors of \[2, 3\] rows"),
    ],
)
def test_what_has_no_label_per_sample_is_refused(batch: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        list(by_label([batch]))


def test_tensors_that_cannot_be_joined_are_refused() -> None:
    batches = [({"ad": np.zeros((2, width))}, np.array([0, 1])) for width in (3, 4)]
    with pytest.raises(ConfigError, match=r"\(1, 3\), \(1, 4\)"):
        list(by_label(batches))


def test_data_nodes_share_the_groups() -> None:
    """Each reads the shard, and sends every so many'th batch of one label value."""
    elements = [element([0, 1, 1, 0, 1], 5 * seed, seed) for seed in range(5)]
    parts = [
        list(Reading("f", {}, 0, 1, node, 2, "batch", LABEL).part(iter(elements)))
        for node in range(2)
    ]
    assert samples(parts[0]) | samples(parts[1]) == samples(elements)
    assert [len(part) for part in parts] == [3, 2]
