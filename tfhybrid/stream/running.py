"""All processes of a stream on one machine: what `tfhybrid stream run` starts and watches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfhybrid.errors import ConfigError
from tfhybrid.nodes import local_engine
from tfhybrid.nodes.cluster_file import read_role
from tfhybrid.nodes.node_options import make_token
from tfhybrid.nodes.placed_processes import PlacedProcess
from tfhybrid.stream.settings import StreamSettings


def processes_of(config: Path) -> list[PlacedProcess]:
    """Returns what a stream has running: sync unit, provider, and trainers.

    A trainer's environment names `stream.yaml`, and the trainer: `TFHYBRID_STREAM` and
    `TFHYBRID_STREAM_TRAINER`.

    Args:
        config: `stream.yaml`.

    Raises:
        ConfigError: It is not one, or has no trainers.
    """
    settings = StreamSettings.read(config)
    if not settings.trainers:
        raise ConfigError(
            f"{config} says which trainers to start: trainers: {{ads: {{count: 2, command: "
            "[python, train.py]}}}}. Received: none"
        )
    command = (sys.executable, "-m", "tfhybrid.cli", "stream")
    # What belongs to no model has a line here, before the trainers.
    found = [
        PlacedProcess("sync", (*command, "sync", str(config))),
        PlacedProcess("provider", (*command, "provide", str(config))),
    ]
    for name, said in settings.trainers.items():
        role = read_role(config, name, said)
        for number in range(role.count):
            trainer = f"{name}-{number}"
            environment = {"TFHYBRID_STREAM": str(config), "TFHYBRID_STREAM_TRAINER": trainer}
            found.append(
                PlacedProcess(
                    trainer, role.command, environment, role.cpus, role.numa, may_end=True
                )
            )
    return found


def run(config: Path, tell: Callable[[dict[str, Any]], object]) -> None:
    """Runs a stream until SIGTERM or SIGINT comes, or all trainers have ended with status 0.

    Logs lie in `processes/` in the stream's folder. A process that dies is started again. At the
    end all are told to stop; the sync unit writes a base.

    Args:
        config: `stream.yaml`; its token file is made if it is not there.
        tell: Called with pid and number of starts of each process, by name, when they change.

    Raises:
        ConfigError: As of `processes_of`.
        StoreError: The stream runs already.
    """
    processes = processes_of(config.absolute())
    settings = StreamSettings.read(config)
    directory = Path(settings.folder) / "processes"
    directory.mkdir(parents=True, exist_ok=True)
    make_token(Path(settings.token_file))
    local_engine.run(directory, processes, tell)
