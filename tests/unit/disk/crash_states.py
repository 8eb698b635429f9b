"""What a disk may hold after power is lost, from a journal of calls (disk_calls.c).

Every prefix of the calls, and every prefix with one or two of the changes left out that nothing had
forced to disk by then: writes by `fsync` of their file, names by `fsync` of their folder. As ALICE
(Pillai et al., OSDI 2014) and CrashMonkey (Mohan et al., OSDI 2018) do.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Call:
    """A call that changed files: names as paths relative to the folder that was watched."""

    name: str
    path: str
    other: str = ""
    offset: int = 0
    data: bytes = b""


def read_journal(journal: Path, folder: Path) -> list[Call]:
    """Returns the calls on a folder, in order."""
    calls, content, at = [], journal.read_bytes(), 0
    while at < len(content):
        end = content.index(b"\n", at)
        name, path, other, offset, size = content[at:end].decode().split("\t")
        at = end + 1 + int(size)
        relative = [str(Path(p).relative_to(folder)) if p else "" for p in (path, other)]
        calls.append(Call(name, *relative, int(offset), content[end + 1 : at]))
    return calls


@dataclasses.dataclass(frozen=True)
class Change:
    """A call in terms of inodes, so that it means the same where others are left out."""

    name: str
    node: int  # what is written or gets or loses a name
    entries: tuple[tuple[int, str], ...] = ()  # the names, each with its folder's node
    other: int = 0  # of an exchange, the second node
    offset: int = 0
    data: bytes = b""


Tree = dict[str, bytes | None]  # contents of files by path; None of folders


class Disk:
    """Files and folders by number, 0 the root."""

    def __init__(self) -> None:
        self.folders: dict[int, dict[str, int]] = {0: {}}
        self.files: dict[int, bytearray] = {}

    def apply(self, change: Change) -> None:
        """Does what the change says, as far as it still can."""
        match change.name:
            case "create":
                self.files.setdefault(change.node, bytearray())
                self._set(change.entries[0], change.node)
            case "mkdir":
                self.folders.setdefault(change.node, {})
                self._set(change.entries[0], change.node)
            case "write":
                content = self.files.setdefault(change.node, bytearray())
                content.extend(bytes(max(0, change.offset - len(content))))
                content[change.offset : change.offset + len(change.data)] = change.data
            case "truncate":
                self.files[change.node] = bytearray()
            case "unlink":
                self._clear(change.entries[0], change.node)
            case "rename":
                self._clear(change.entries[0], change.node)
                self._set(change.entries[1], change.node)
            case "exchange":
                self._set(change.entries[0], change.other)
                self._set(change.entries[1], change.node)

    def tree(self, node: int = 0, path: str = "") -> Tree:
        """Returns all that has a name."""
        found: Tree = {}
        for name, child in self.folders.get(node, {}).items():
            where = f"{path}/{name}" if path else name
            if child in self.files:
                found[where] = bytes(self.files[child])
            else:
                found |= {where: None} | self.tree(child, where)
        return found

    def find(self, path: str) -> int:
        """Returns the number of what a path names."""
        node = 0
        for name in Path(path).parts:
            node = self.folders[node][name]
        return node

    def _set(self, entry: tuple[int, str], node: int) -> None:
        self.folders.setdefault(entry[0], {})[entry[1]] = node

    def _clear(self, entry: tuple[int, str], node: int) -> None:
        if self.folders.get(entry[0], {}).get(entry[1]) == node:
            del self.folders[entry[0]][entry[1]]


def _changes(calls: list[Call]) -> list[Change]:
    """Returns the calls by inode."""
    disk, numbers, changes = Disk(), itertools.count(1), []

    def entry(path: str) -> tuple[int, str]:
        return disk.find(str(Path(path).parent)), Path(path).name

    for call in calls:
        if call.name in ("create", "mkdir"):
            change = Change(call.name, next(numbers), (entry(call.path),))
        elif call.name in ("rename", "exchange"):
            other = disk.find(call.other) if call.name == "exchange" else 0
            entries = (entry(call.path), entry(call.other))
            change = Change(call.name, disk.find(call.path), entries, other)
        elif call.name == "unlink":
            change = Change(call.name, disk.find(call.path), (entry(call.path),))
        else:
            node = disk.find(call.path)
            change = Change(call.name, node, offset=call.offset, data=call.data)
        disk.apply(change)
        changes.append(change)
    return changes


def _is_forced(change: Change, later: list[Change]) -> bool:
    """Whether a change is on disk for certain."""
    needed = {node for node, _ in change.entries} or {change.node}
    return needed <= {other.node for other in later if other.name == "fsync"}


def trees(calls: list[Call], first: int) -> Iterator[Tree]:
    """Yields what may be left, each once, of a loss of power from call `first` on."""
    changes, seen = _changes(calls), set()
    for end in range(first, len(changes) + 1):
        begun = changes[:end]
        loose = [
            i
            for i, change in enumerate(begun)
            if change.name != "fsync" and not _is_forced(change, begun[i + 1 :])
        ]
        for count in (0, 1, 2):
            for lost in itertools.combinations(loose, count):
                disk = Disk()
                for i, change in enumerate(begun):
                    if i not in lost:
                        disk.apply(change)
                tree = disk.tree()
                signature = hash(frozenset(tree.items()))
                if signature not in seen:
                    seen.add(signature)
                    yield tree


def write(tree: Tree, folder: Path) -> None:
    """Makes files of a tree."""
    for path, content in sorted(tree.items()):
        if content is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
