"""The cluster file, which lists the nodes of a cluster: `tfhybrid nodes up cluster.yaml`.

    launcher: local            # local (this machine) or ray (a Ray cluster)
    directory: nodes           # state, logs and token; relative to this file
    listen: 127.0.0.1          # address on which all nodes listen
    port: 7100                 # port of the metadata node
    status_port: 7101          # port of the status page
    roles:
      embedding: {count: 3, cpus: 2}
      data: {count: 2, script: train.py}
      gateway: {count: 1, command: [python, gateway.py]}

A role with a `command` runs a program of the user. The launcher restarts it like the other roles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfhybrid._deprecated import renamed_keys
from tfhybrid.core.yaml_file import YamlFile
from tfhybrid.errors import ConfigError

LAUNCHERS = ("local", "ray")
OWNERS = "embedding"
READERS = "data"
_FIELDS = ("launcher", "directory", "listen", "port", "status_port", "roles")
_ROLE_FIELDS = ("count", "command", "cpus", "numa", "shards", "script")


@dataclasses.dataclass(frozen=True)
class Role:
    """Processes of a cluster that run the same program.

    Args:
        count: Number of processes.
        command: Command line of a process. Default: empty, the built-in command of the role.
        cpus: Number of processors for each process. Default: 0, all of them.
        numa: Number of the NUMA node whose processors and memory the processes use. Default:
            `None`, any.
        shards: Number of shards (equal parts of the key space), which is also the maximum number of
            embedding nodes; 0 in other roles.
        script: Python file or module with the functions that create data sets; set only for data
            nodes.
    """

    count: int
    command: tuple[str, ...] = ()
    cpus: int = 0
    numa: int | None = None
    shards: int = 0
    script: str = ""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Contents of a cluster file.

    Args:
        launcher: Name of the launcher, which places, watches and restarts the processes.
        directory: Directory for the logs, the token and the state file of the metadata node.
        listen: Address on which all nodes listen.
        port: Port of the metadata node, 1 to 65535.
        status_port: Port of the status page, 1 to 65535.
        roles: Roles by name; `"embedding"` is always among them.
    """

    launcher: str
    directory: Path
    listen: str
    port: int
    status_port: int
    roles: Mapping[str, Role]

    @classmethod
    def read(cls, path: Path) -> Cluster:
        """Reads and checks a cluster file.

        Args:
            path: Path of the YAML file.

        Returns:
            The contents, with defaults for fields that the file lacks.

        Raises:
            ConfigError: The file cannot be read, or a field is missing, unknown or invalid.
        """
        file = YamlFile(path)
        fields = file.check(_FIELDS, renamed_keys(file.content, engine="launcher"))
        launcher = fields.get("launcher", "local")
        if launcher not in LAUNCHERS:
            raise ConfigError(
                f"{file.at('launcher')} must be one of {LAUNCHERS}. Received: {launcher!r}"
            )
        if not isinstance(fields.get("roles"), dict):
            raise ConfigError(
                f"{file.at('roles')} must map role names to fields. "
                f"Received: {fields.get('roles')!r}"
            )
        roles = {
            str(name): read_role(file, role, "roles", str(name))
            for name, role in fields["roles"].items()
        }
        if OWNERS not in roles:
            raise ConfigError(
                f"{file.at('roles')}: the role '{OWNERS}', which owns the tables, is missing. "
                f"Received: {[*roles]}"
            )
        return cls(
            launcher,
            (path.parent / str(fields.get("directory", "nodes"))).resolve(),
            str(fields.get("listen", "127.0.0.1")),
            _port(file, "port", fields.get("port", 7100)),
            _port(file, "status_port", fields.get("status_port", 7101)),
            roles,
        )

    def owners(self) -> list[str]:
        """Returns the name of the embedding node that owns each shard when the cluster is new.

        The names are in the order of the shards. Shards may move later; only the metadata node
        knows their present owners.
        """
        names, shards = self.names(OWNERS), self.roles[OWNERS].shards
        return [names[shard * len(names) // shards] for shard in range(shards)]

    def names(self, role: str) -> list[str]:
        """Returns the names of a role's processes; empty if the file does not list the role.

        Args:
            role: Name of the role.
        """
        count = self.roles[role].count if role in self.roles else 0
        return [f"{role}-{number}" for number in range(count)]

    @property
    def token_file(self) -> Path:
        """Path of the file with the cluster's secret token, by which its nodes authenticate."""
        return self.directory / "token"


def read_role(file: YamlFile, content: object, section: str, name: str) -> Role:
    """Checks the description of a role in a YAML file and returns the role.

    Args:
        file: The file, for errors.
        content: Parsed YAML value of the role.
        section: Name of the section that has the role.
        name: Name of the role.

    Raises:
        ConfigError: A field is unknown or invalid.
    """
    fields = file.check(_ROLE_FIELDS, renamed_keys(content, shares="shards"), section, name)
    at = file.at(section, name)
    count, cpus, numa = fields.get("count", 1), fields.get("cpus", 0), fields.get("numa")
    command = fields.get("command", [])
    if not _is_whole(count, 1) or not _is_whole(cpus, 0):
        raise ConfigError(
            f"{at}: count must be at least 1 and cpus at least 0 in role '{name}'. "
            f"Received: count={count!r}, cpus={cpus!r}"
        )
    if numa is not None and not _is_whole(numa, 0):
        raise ConfigError(f"{at}: numa must be the number of a NUMA node. Received: {numa!r}")
    if not isinstance(command, list) or (name not in (OWNERS, READERS)) != bool(command):
        raise ConfigError(
            f"{at}: the roles '{OWNERS}' and '{READERS}' have built-in commands; every other "
            f"role must set its command, a list. Received: role '{name}' with {command!r}"
        )
    shards = fields.get("shards", count if name == OWNERS else 0)
    if not _is_whole(shards, count if name == OWNERS else 0) or (name != OWNERS and shards):
        raise ConfigError(
            f"{at}: only role '{OWNERS}' has shards, and shards must be at least count. "
            f"Received: shards={shards!r} of role '{name}' with count={count!r}"
        )
    return Role(
        count, tuple(map(str, command)), cpus, numa, shards, _script(file, at, name, fields)
    )


def _script(file: YamlFile, at: str, name: str, fields: Mapping[str, Any]) -> str:
    script = fields.get("script", "")
    if not isinstance(script, str) or (name == READERS) != bool(script):
        raise ConfigError(
            f"{at}: role '{READERS}' must set its script, a file or a module, and no other role "
            f"can. Received: role '{name}' with {script!r}"
        )
    return str((file.path.parent / script).resolve()) if script.endswith(".py") else script


def _port(file: YamlFile, name: str, value: object) -> int:
    if not _is_whole(value, 1) or int(str(value)) > 65535:
        raise ConfigError(f"{file.at(name)} must be a port, 1 to 65535. Received: {value!r}")
    return int(str(value))


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
