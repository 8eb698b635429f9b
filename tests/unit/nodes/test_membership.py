"""What the metadata node keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfhybrid.core.whole_file import unfinished_of
from tfhybrid.errors import CorruptFileError, NameTakenError, StoreError
from tfhybrid.nodes.membership import SLOTS, Membership, NodeState

OWNERS = ("embedding-0", "embedding-1")
ADDRESS = ("127.0.0.1", 4000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def joined(path: Path) -> Membership:
    members = Membership(path, OWNERS)
    for name in OWNERS:
        members.join(name, "embedding", ADDRESS, f"first of {name}")
        members.heard_of(name, f"first of {name}")
    return members


def test_states_are_stored_and_taken_over(path: Path) -> None:
    members = joined(path)
    assert members.view.missing() == []
    again = Membership(path, OWNERS)
    assert again.view.epoch == members.view.epoch
    assert again.view.missing() == [*OWNERS]  # until they come back
    assert again.join("embedding-0", "embedding", ADDRESS, "first of embedding-0") == 3
    assert again.join("embedding-1", "embedding", ADDRESS, "another") == 4
    assert not unfinished_of(path).exists()


def test_the_epoch_counts_owners_that_come_as_others(path: Path) -> None:
    members = joined(path)
    epoch = members.view.epoch
    assert members.join("data-0", "data", ADDRESS, "x") == epoch
    assert members.join("embedding-0", "embedding", ADDRESS, "first of embedding-0") == epoch
    moved = ("127.0.0.1", 4001)
    assert members.join("embedding-0", "embedding", moved, "first of embedding-0") == epoch + 1
    with pytest.raises(NameTakenError, match="Node 'embedding-0' is joining at"):
        members.join("embedding-0", "embedding", ADDRESS, "second")
    members.set_state("embedding-0", "first of embedding-0", NodeState.LOST)
    assert members.join("embedding-0", "embedding", ADDRESS, "second") == epoch + 2
    members.set_state("embedding-0", "first of embedding-0", NodeState.LOST)  # comes late
    assert members.view.nodes["embedding-0"].state == NodeState.JOINING


def test_draining_stays_until_another_process_comes(path: Path) -> None:
    joined(path).drain("embedding-1")
    again = Membership(path, OWNERS)
    again.join("embedding-1", "embedding", ADDRESS, "first of embedding-1")
    assert again.view.nodes["embedding-1"].state == NodeState.DRAINING
    again.heard_of("embedding-1", "first of embedding-1")
    assert again.view.nodes["embedding-1"].draining
    again.set_state("embedding-1", "first of embedding-1", NodeState.LOST)
    again.join("embedding-1", "embedding", ADDRESS, "second")
    again.heard_of("embedding-1", "second")
    assert again.view.nodes["embedding-1"].state == NodeState.READY
    with pytest.raises(StoreError, match=r"The nodes are \['embedding-1'\]. Received: 'nobody'"):
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
    with pytest.raises(CorruptFileError, match="is no state of a metadata node"):
        Membership(path, OWNERS)


def test_a_file_of_other_owners_is_refused(path: Path) -> None:
    joined(path)
    with pytest.raises(StoreError, match=r"Received: \['embedding-0'\]"):
        Membership(path, OWNERS[:1])
