"""The file that says which nodes a cluster has: `tfhybrid nodes up cluster.yaml`.

    engine: local              # processes of this machine; ray: of a Ray cluster
    directory: nodes           # state, logs and token; beside this file
    listen: 127.0.0.1          # the network on which all of them listen
    port: 7100                 # of the metadata node
    status_port: 7101          # of its page
    roles:
      embedding: {count: 3, cpus: 2}
      data: {count: 2, script: train.py}
      gateway: {count: 1, command: [python, gateway.py]}

A role with a `command` is the user's own; it is watched and started again like the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfhybrid.core.yaml_file import read_yaml
from tfhybrid.errors import ConfigError

ENGINES = ("local", "ray")
OWNERS = "embedding"
READERS = "data"
_FIELDS = ("engine", "directory", "listen", "port", "status_port", "roles")
_ROLE_FIELDS = ("count", "command", "cpus", "numa", "shares", "script")


@dataclasses.dataclass(frozen=True)
class Role:
    """Processes that do the same.

    Args:
        count: How many.
        command: What they run; empty for the role's own.
        cpus: How many processors each may use; 0 for all.
        numa: The NUMA node on whose processors and memory they run; `None` for any.
        shares: Into how many shares the slots are split, the most nodes that can own some; of the
            role that owns tables.
        script: Of data nodes: the file or the module that has the functions which make data sets.
    """

    count: int
    command: tuple[str, ...] = ()
    cpus: int = 0
    numa: int | None = None
    shares: int = 0
    script: str = ""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """What a cluster file says.

    Args:
        engine: What places, watches and restarts its processes.
        directory: Of state, logs and token.
        listen: The address on which all listen.
        port: Of the metadata node.
        status_port: Of its page.
        roles: By name.
    """

    engine: str
    directory: Path
    listen: str
    port: int
    status_port: int
    roles: Mapping[str, Role]

    @classmethod
    def read(cls, path: Path) -> Cluster:
        """Reads a cluster file.

        Raises:
            ConfigError: It is not there, or a field cannot be.
        """
        fields = _checked(read_yaml(path), _FIELDS, path)
        engine = fields.get("engine", "local")
        if engine not in ENGINES:
            raise ConfigError(f"{path}: engine must be one of {ENGINES}. Received: {engine!r}")
        if not isinstance(fields.get("roles"), dict):
            raise ConfigError(f"{path}: roles say what to start. Received: {fields.get('roles')!r}")
        roles = {
            str(name): read_role(path, str(name), its) for name, its in fields["roles"].items()
        }
        if OWNERS not in roles:
            raise ConfigError(f"{path}: the role '{OWNERS}' owns the tables. Received: {[*roles]}")
        return cls(
            engine,
            (path.parent / str(fields.get("directory", "nodes"))).resolve(),
            str(fields.get("listen", "127.0.0.1")),
            _port(path, "port", fields.get("port", 7100)),
            _port(path, "status_port", fields.get("status_port", 7101)),
            roles,
        )

    def owners(self) -> list[str]:
        """Returns of each share of the slots the node that owns it at first."""
        names, shares = self.names(OWNERS), self.roles[OWNERS].shares
        return [names[share * len(names) // shares] for share in range(shares)]

    def names(self, role: str) -> list[str]:
        """Returns the names of the processes of a role; none where the file does not name it."""
        count = self.roles[role].count if role in self.roles else 0
        return [f"{role}-{number}" for number in range(count)]

    @property
    def token_file(self) -> Path:
        """Where the token lies."""
        return self.directory / "token"


def read_role(path: Path, name: str, said: object) -> Role:
    """Returns a role as a file describes it.

    Args:
        path: Of the file, for errors.
        name: Of the role.
        said: Its fields.

    Raises:
        ConfigError: A field is unknown or cannot be.
    """
    its = _checked(said, _ROLE_FIELDS, path)
    count, cpus, numa = its.get("count", 1), its.get("cpus", 0), its.get("numa")
    command = its.get("command", [])
    if not _is_whole(count, 1) or not _is_whole(cpus, 0):
        raise ConfigError(
            f"{path}: count is at least 1 and cpus at least 0 in role '{name}'. "
            f"Received: count={count!r}, cpus={cpus!r}"
        )
    if numa is not None and not _is_whole(numa, 0):
        raise ConfigError(f"{path}: numa is the number of a node. Received: {numa!r}")
    if not isinstance(command, list) or (name not in (OWNERS, READERS)) != bool(command):
        raise ConfigError(
            f"{path}: roles '{OWNERS}' and '{READERS}' have commands of their own, every other one "
            f"names its command, a list. Received: role '{name}' with {command!r}"
        )
    shares = its.get("shares", count if name == OWNERS else 0)
    if not _is_whole(shares, count if name == OWNERS else 0) or (name != OWNERS and shares):
        raise ConfigError(
            f"{path}: shares, at least as many as nodes, belong to role '{OWNERS}'. "
            f"Received: shares={shares!r} of role '{name}' with count={count!r}"
        )
    return Role(count, tuple(map(str, command)), cpus, numa, shares, _script(path, name, its))


def _script(path: Path, name: str, its: Mapping[str, Any]) -> str:
    script = its.get("script", "")
    if not isinstance(script, str) or (name == READERS) != bool(script):
        raise ConfigError(
            f"{path}: role '{READERS}' names its script, a file or a module, and no other role "
            f"does. Received: role '{name}' with {script!r}"
        )
    return str((path.parent / script).resolve()) if script.endswith(".py") else script


def _checked(said: object, known: tuple[str, ...], path: Path) -> dict[str, Any]:
    if not isinstance(said, dict) or set(said) - set(known):
        raise ConfigError(f"{path}: the fields are {known}. Received: {said!r}")
    return said


def _port(path: Path, name: str, value: object) -> int:
    if not _is_whole(value, 1) or int(str(value)) > 65535:
        raise ConfigError(f"{path}: {name} is a port, 1 to 65535. Received: {value!r}")
    return int(str(value))


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
