"""What the metadata node keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfhybrid.cluster.balance import moves
from tfhybrid.cluster.membership import (
    SLOTS,
    Membership,
    Node,
    NodeState,
    View,
)
from tfhybrid.core.whole_file import unfinished_of
from tfhybrid.errors import CorruptFileError, NameTakenError, StaleEpochError, StoreError

OWNERS = ("embedding-0", "embedding-1")
ADDRESS = ("127.0.0.1", 4000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def registered(path: Path) -> Membership:
    members = Membership(path, OWNERS)
    for name in OWNERS:
        members.register(name, "embedding", ADDRESS, f"first of {name}")
        members.heard_of(name, f"first of {name}")
    return members


def test_states_are_stored_and_loaded(path: Path) -> None:
    members = registered(path)
    assert members.view.missing() == []
    again = Membership(path, OWNERS)
    assert again.view.epoch == members.view.epoch
    assert again.view.missing() == [*OWNERS]  # until they come back
    assert again.register("embedding-0", "embedding", ADDRESS, "first of embedding-0") == 3
    assert again.register("embedding-1", "embedding", ADDRESS, "another") == 4
    assert not unfinished_of(path).exists()


def test_the_epoch_counts_owners_that_come_as_others(path: Path) -> None:
    members = registered(path)
    epoch = members.view.epoch
    assert members.register("data-0", "data", ADDRESS, "x") == epoch
    assert members.register("embedding-0", "embedding", ADDRESS, "first of embedding-0") == epoch
    moved = ("127.0.0.1", 4001)
    assert members.register("embedding-0", "embedding", moved, "first of embedding-0") == epoch + 1
    with pytest.raises(NameTakenError, match="Node 'embedding-0' is joining at"):
        members.register("embedding-0", "embedding", ADDRESS, "second")
    members.set_state("embedding-0", "first of embedding-0", NodeState.LOST)
    assert members.register("embedding-0", "embedding", ADDRESS, "second") == epoch + 2
    members.set_state("embedding-0", "first of embedding-0", NodeState.LOST)  # comes late
    assert members.view.nodes["embedding-0"].state == NodeState.REGISTERED


def test_draining_stays_until_another_process_comes(path: Path) -> None:
    registered(path).drain("embedding-1")
    again = Membership(path, OWNERS)
    again.register("embedding-1", "embedding", ADDRESS, "first of embedding-1")
    assert again.view.nodes["embedding-1"].state == NodeState.DRAINING
    again.heard_of("embedding-1", "first of embedding-1")
    assert again.view.nodes["embedding-1"].draining
    again.set_state("embedding-1", "first of embedding-1", NodeState.LOST)
    again.register("embedding-1", "embedding", ADDRESS, "second")
    again.heard_of("embedding-1", "second")
    assert again.view.nodes["embedding-1"].state == NodeState.READY
    with pytest.raises(
        StoreError, match=r"The node must be one of \['embedding-1'\]. Received: 'nobody'"
    ):
        again.drain("nobody")


@pytest.mark.parametrize("owners", [1, 2, 3, 7])
def test_slots_are_those_of_the_core(path: Path, owners: int) -> None:
    names = [f"embedding-{number}" for number in range(owners)]
    slots = Membership(path, names).view.slots()
    of_slot = [name for name, _, count in slots for _ in range(count)]
    assert of_slot == [names[slot * owners // SLOTS] for slot in range(SLOTS)]
    assert [first for _, first, _ in slots] == [of_slot.index(name) for name in names]


@pytest.mark.parametrize("content", ["", "[]", '{"format": 2}', '{"format": 1, "epoch": 1}'])
def test_a_damaged_file_is_refused(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(CorruptFileError, match="is not a valid state file of a metadata node"):
        Membership(path, OWNERS)


def test_a_file_of_other_owners_is_refused(path: Path) -> None:
    registered(path)
    with pytest.raises(StoreError, match=r"Received: \['embedding-0'\]"):
        Membership(path, OWNERS[:1])


def test_shards_move_under_the_epoch_at_which_it_was_planned(path: Path) -> None:
    members = registered(path)
    epoch = members.view.epoch
    assert members.move(0, "embedding-0", "embedding-1", epoch) == epoch + 1
    assert Membership(path, OWNERS).view.owners == ("embedding-1", "embedding-1")
    with pytest.raises(StaleEpochError, match=f"epoch {epoch + 1}. Received: {epoch}"):
        members.move(1, "embedding-1", "embedding-0", epoch)
    with pytest.raises(StoreError, match="The owners of the shards are"):
        members.move(0, "embedding-0", "embedding-1", epoch + 1)
    with pytest.raises(StoreError, match="an embedding node that is ready"):
        members.move(0, "embedding-1", "nobody", epoch + 1)
    assert members.move(0, "embedding-1", "embedding-1", epoch + 1) == epoch + 2  # it stays


def view_of(owners: list[int], states: dict[int, NodeState]) -> View:
    nodes = {
        f"embedding-{number}": Node(f"embedding-{number}", "embedding", ADDRESS, state, "x")
        for number, state in states.items()
    }
    return View(1, tuple(f"embedding-{number}" for number in owners), nodes)


READY, DRAINING, LOST = NodeState.READY, NodeState.DRAINING, NodeState.LOST


@pytest.mark.parametrize(
    ("owners", "states", "wanted"),
    [
        ([0, 0, 1, 1], {0: READY, 1: READY}, []),
        ([0, 0, 1, 1], {0: READY, 1: DRAINING}, [(2, 0), (3, 0)]),
        ([0, 0, 1, 1], {0: READY, 1: LOST}, []),  # its rows are in its memory
        ([0, 0, 1, 1], {0: DRAINING, 1: DRAINING}, []),
        ([0, 0, 0, 1, 1, 1], {0: READY, 1: READY, 2: READY}, [(2, 2), (5, 2)]),
        ([0, 1, 2], {0: DRAINING, 1: READY, 2: READY, 3: READY}, [(0, 3)]),
        ([0], {0: READY, 1: READY}, []),
    ],
)
def test_draining_nodes_are_emptied_and_ready_ones_evened_out(
    owners: list[int], states: dict[int, NodeState], wanted: list[tuple[int, int]]
) -> None:
    planned = moves(view_of(owners, states))
    assert [(each.shard, each.to) for each in planned] == [
        (shard, f"embedding-{to}") for shard, to in wanted
    ]
    assert all(each.origin == f"embedding-{owners[each.shard]}" for each in planned)
