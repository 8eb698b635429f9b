"""What a trainer gets of a batch: tensors come back as they were, in few bytes, or are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.roles.split_roles import (
    FEATURES,
    dataset,
    split_job,
)
from tfhybrid.core.split_batches import TICKETS, key_handle_of, make_key_handles
from tfhybrid.data import Ragged
from tfhybrid.data_nodes.data_streams import BY_BATCH, DataStream, OpenedEpoch, Reading
from tfhybrid.data_nodes.dense_half import (
    from_arrays,
    lengthened,
    shortened,
    to_arrays,
)
from tfhybrid.data_nodes.elements import (
    DENSE,
    RAGGED,
    SPARSE,
    Leaf,
    flatten,
)
from tfhybrid.data_nodes.key_links import PULL
from tfhybrid.data_nodes.splitting import Declared, split
from tfhybrid.errors import ConfigError, DataError, StoreError

LAST_INDEX, LAST_OWNER, TICKET = (1 << 26) - 1, (1 << 12) - 1, TICKETS - 1
BY_KEY = (1, 0)


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype


@pytest.mark.parametrize(
    ("indices", "owners", "dtype"),
    [
        ([], (1, 2), "uint8"),
        ([], (1, 301), "uint8"),
        ([0, 255], (1, 2), "uint8"),
        ([256], (1, 2), "uint16"),
        ([0, 127], (0, 2), "uint8"),
        ([128], (2, 4), "uint16"),
        ([(1 << 16) - 1], (7, 8), "uint16"),
        ([1 << 16], (7, 8), "uint32"),
        ([(1 << 14) - 1], (1, 4), "uint16"),
        ([1 << 14], (1, 4), "uint32"),
        ([(1 << 24) - 1, 1 << 24, LAST_INDEX], (3, 3 + 64), "uint32"),
        ([0], (1, 301), "uint16"),
        ([LAST_INDEX], (3, 3 + 65), "uint64"),
        ([LAST_INDEX], (0, LAST_OWNER + 1), "uint64"),
    ],
)
def test_places_come_back_in_the_smallest_type(
    indices: Sequence[int], owners: tuple[int, int], dtype: str
) -> None:
    """Each index at the first, the last and a middle owner, under the first and the last ticket."""
    whose = sorted({owners[0], sum(owners) // 2, owners[1] - 1})
    for ticket in (0, TICKET):
        words = [[key_handle_of(ticket, owner, index) for owner in whose] for index in indices]
        handles = np.array(words, np.int64).reshape(len(indices), len(whose))
        short = shortened(handles, owners)
        assert short.dtype == dtype
        same(lengthened(short, ticket, owners), handles)


def test_places_are_those_that_owners_count() -> None:
    random = np.random.default_rng(0)
    keys = random.integers(-(2**63), 2**63 - 1, (500, 3))
    (handles,), owned = make_key_handles("item", BY_KEY, (2, 5), 77, [keys])
    key_at = {
        key_handle_of(77, owner, index): key
        for owner, its in enumerate(owned, 2)
        for index, key in enumerate(its)
    }
    short = shortened(handles, (2, 5))
    back = lengthened(short, 77, (2, 5))
    assert short.dtype == np.uint16
    assert [key_at[handle] for handle in back.ravel().tolist()] == keys.ravel().tolist()


def test_a_key_beyond_int64_is_refused() -> None:
    structure, tensors = flatten(({"user": np.uint64([5, 2**63 - 1, 2**63])}, np.zeros(3)))
    leaves = [Leaf.of(tensor) for tensor in tensors]
    declared = Declared({"user": "item"}, {"item": BY_KEY}, 1, 4)
    with pytest.raises(DataError, match=r"'user' must be .* int64. Received: 9223372036854775808"):
        split(declared, structure, leaves, 5)
    fine = [Leaf.of(np.uint64([5, 2**63 - 1])), leaves[1]]
    owned = split(declared, structure, fine, 5).keys
    assert sorted(key for each in owned for key in each.get("item", [])) == [5, 2**63 - 1]


@pytest.mark.parametrize("samples", [0, 1, 300])
def test_a_batch_comes_back_as_it_was_split(samples: int) -> None:
    random = np.random.default_rng(samples)
    lengths = random.integers(0, 4, samples)
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    few = np.flatnonzero(random.integers(0, 2, samples))
    indices = np.column_stack([few, np.zeros(len(few), np.int64)])
    inner = np.arange(splits[-1] + 1) * 2
    features = {
        "bag": Ragged(random.integers(-9, 9, splits[-1]), splits),
        "nested": Leaf(RAGGED, random.integers(9, size=(inner[-1], 2)), (splits, inner)),
        "sparse": Leaf(
            SPARSE, random.integers(9, size=len(few)), (indices, np.array([samples, 1]))
        ),
        "one": random.integers(9, size=(samples, 1)).astype(np.int32),
        "weights": Ragged(random.integers(9, size=splits[-1]), splits),
        "price": random.normal(size=(samples, 2)),
    }
    structure, tensors = flatten((features, np.zeros(samples, np.float32)))
    leaves = [Leaf.of(tensor) for tensor in tensors]
    tables = dict.fromkeys(["bag", "nested", "sparse", "one", "absent"], "item")
    declared = Declared(tables, {"item": BY_KEY}, 1, 4)
    halves = split(declared, structure, leaves, 5)
    other = split(Declared(tables, {"item": BY_KEY}, 1, 2), structure, leaves, 6)
    assert halves.digest == other.digest, "it is of the batch, not of what travels"
    kinds, arrays = to_arrays(halves.leaves, halves.with_handles, declared.owners)
    for leaf, wanted in zip(
        from_arrays(kinds, arrays, halves.with_handles, 5, declared.owners),
        halves.leaves,
        strict=True,
    ):
        assert leaf.kind == wanted.kind
        for array, its in zip(leaf.arrays(), wanted.arrays(), strict=True):
            same(array, its)
    assert [arrays[f"{number}.0"].itemsize for number in range(4)] == [1] * 4
    assert {array.dtype.name for name, array in arrays.items() if name[-1] > "0"} <= {
        "uint8",
        "uint16",
    }
    assert [arrays[f"{number}.0"].dtype.name for number in (4, 5)] == ["int64", "float64"]


BAG = {"0.0": np.zeros(3, np.uint8), "0.1": np.array([1, 2], np.uint8)}
TAGS = {**BAG, "0.1": np.zeros((3, 2), np.uint8), "0.2": np.array([3, 9], np.uint16)}


@pytest.mark.parametrize(
    ("kind", "arrays", "owners", "why"),
    [
        (DENSE, {"0.0": np.zeros(2, np.int64)}, 1, r"unsigned numbers\. Received: int64"),
        (DENSE, {"0.0": np.zeros(2, np.float32)}, 1, r"unsigned numbers\. Received: float32"),
        (DENSE, {"0.0": np.array([7], np.uint8)}, 3, r"one of 3 owners\. Received: 3"),
        (DENSE, {"0.0": np.array([1 << 26], np.uint32)}, 1, r"26 bits .* Received: 67108864"),
        (DENSE, {"0.0": np.array([1 << 63], np.uint64)}, 300, r"owner's 9\. Received: 9223"),
        (DENSE, BAG, 1, r"dense tensor has other parts\. Received: 2"),
        (DENSE, {}, 1, r"dense tensor has other parts\. Received: 0"),
        ("odd", BAG, 1, "odd tensor has other parts"),
        (DENSE, {"1.0": np.zeros(2, np.uint8)}, 1, r"1 tensors .* Received: \['1\.0'\]"),
        (RAGGED, {**BAG, "0.1": np.array([0, 3])}, 1, r"Lengths .* Received: int64"),
        (RAGGED, {**BAG, "0.1": np.array([1, 1], np.uint8)}, 1, r"\(3,\)\. Received: 2 in all"),
        (RAGGED, {**BAG, "0.1": np.array([[3]], np.uint8)}, 1, r"of shape \(1, 1\)"),
        (RAGGED, {**BAG, "0.0": np.array(3, np.uint8)}, 1, r"values of shape \(\)"),
        (SPARSE, BAG, 1, r"sparse tensor has other parts\. Received: 2"),
        (SPARSE, {**TAGS, "0.1": np.zeros((2, 2), np.uint8)}, 1, r"Received: shapes \(3,\)"),
        (SPARSE, {**TAGS, "0.1": np.zeros((3, 2))}, 1, r"Indices .* Received: float64"),
        (SPARSE, {**TAGS, "0.2": np.array([3, -9])}, 1, r"Dense shapes .* Received: int64"),
    ],
)
def test_what_is_no_half_of_a_batch_is_refused(
    kind: str, arrays: dict[str, np.ndarray], owners: int, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        from_arrays([kind], arrays, [0], 5, (1, 1 + owners))


@pytest.mark.parametrize(
    ("leaf", "why"),
    [
        (Leaf(RAGGED, np.zeros(3), (np.array([0, 2, 1, 3]),)), "rise from 0 to its 3 values"),
        (Leaf(RAGGED, np.zeros(3), (np.array([1, 3]),)), r"Received: \[1 3\]"),
        (Leaf(RAGGED, np.zeros(3), (np.array([0, 2]),)), r"Received: \[0 2\]"),
        (Leaf(RAGGED, np.zeros(0), (np.zeros(0, np.int64),)), r"Received: \[\]"),
        (
            Leaf(SPARSE, np.zeros(1), (np.array([[-1, 0]]), np.array([2, 2]))),
            r"not be negative\. Received: -1",
        ),
    ],
)
def test_tensors_that_are_none_are_not_sent(leaf: Leaf, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        to_arrays([leaf], [], (1, 2))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kinds": [DENSE]}, "tensors of which"),
        ({"kinds": None}, "kinds: Input should be a valid list"),
        ({"structure": {"leaf": 0}}, "dict of features"),
    ],
)
def test_a_trainer_names_the_node_that_sends_something_else(
    tmp_path, change: dict[str, object], why: str
) -> None:
    class OfAnotherRelease(DataStream):
        def next(self, *arguments, **named):
            return dataclasses.replace(super().next(*arguments, **named), **change)

    with split_job(tmp_path / "split", 1, 1, 1) as job:
        job.stream = OfAnotherRelease
        feed = job.feed(0)
        with pytest.raises((StoreError, ConfigError), match=f"data-0 sent an invalid .*{why}"):
            next(feed.epoch(job.declared))
        feed.close()


@pytest.mark.parametrize("changed", ["", "content", "length"])
def test_a_data_node_that_comes_back_reads_the_same_batches(tmp_path, changed: str) -> None:
    batches = dataset((0, 1))
    with split_job(tmp_path / "split", 1, 1, 1) as job:
        job.make = lambda *_: batches
        feed = job.feed(0)
        epoch = feed.epoch(job.declared)
        received = [next(epoch), next(epoch)]
        feed.close()  # the data node is restarted
        if changed == "content":
            features, labels = batches[1]
            batches[1] = ({**features, "price": features["price"] + 1}, labels)
        elif changed:
            del batches[1:]
        if changed:
            with pytest.raises(DataError, match=r"must return the same batches again.*batch 1 of"):
                list(epoch)
        else:
            assert len(received) + len(list(epoch)) == len(batches)
        feed.close()


def test_bytes_into_a_trainer_are_few(tmp_path) -> None:
    """A key handle of the first batch takes a byte, where a key took four or eight."""
    with split_job(tmp_path / "split", 1, 3, 1) as job:
        link = job.dial("data-0")
        opened = OpenedEpoch(
            Reading("dataset", {}, 0, 1, 0, 1, BY_BATCH),
            session="session",
            owners=[],
            silence=60.0,
            declared=job.declared,
            data_set=0,
            trains=True,
            join=PULL,
            staleness=0,
            epoch=0,
            number=0,
        )
        link.call(DataStream.open, opened)
        said = link.call(DataStream.next, 0, [], {})
        assert said is not None
        link.close()
    features, _ = dataset((0, 1))[0]
    at = {name: its["leaf"] for name, its in said.structure["tuple"][0]["dict"].items()}
    for feature in FEATURES:
        array = said.arrays[f"{at[feature]}.0"]
        assert (array.shape, array.dtype) == (features[feature].shape, np.uint8)
    same(said.arrays[f"{at['price']}.0"], features["price"])
