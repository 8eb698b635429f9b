"""All processes of a stream on one machine, as `tfhybrid stream run` starts and watches them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfhybrid.cluster import local_launcher
from tfhybrid.cluster.cluster_file import read_role
from tfhybrid.cluster.node_options import make_token
from tfhybrid.cluster.placed_processes import PlacedProcess
from tfhybrid.core.yaml_file import YamlFile
from tfhybrid.errors import ConfigError, TfhybridError
from tfhybrid.stream.audit import QueueAccount, audit
from tfhybrid.stream.stream_settings import StreamSettings

_log = logging.getLogger("tfhybrid.stream")


def processes_of(config: Path) -> list[PlacedProcess]:
    """Returns the processes of a stream: sync unit, provider and trainers.

    A trainer gets the path of `stream.yaml` in `TFHYBRID_STREAM`, and its own name in
    `TFHYBRID_STREAM_TRAINER`.

    Args:
        config: Path of `stream.yaml`, absolute if the processes shall start in other folders.

    Raises:
        ConfigError: The file is not valid, or has no trainers.
    """
    file = YamlFile(config)
    return _processes(config, file, StreamSettings.of(file))


def _processes(config: Path, file: YamlFile, settings: StreamSettings) -> list[PlacedProcess]:
    if not settings.trainers:
        raise ConfigError(
            f"{config} must name the trainers to start, for example trainers: {{ads: {{count: 2, "
            f"command: [python, train.py]}}}}. Received: none"
        )
    command = (sys.executable, "-m", "tfhybrid.cli", "stream")
    # A process that belongs to no model goes here, before the trainers.
    processes = [
        PlacedProcess("sync", (*command, "sync", str(config))),
        PlacedProcess("provider", (*command, "provide", str(config))),
    ]
    for name, fields in settings.trainers.items():
        role = read_role(file, fields, "trainers", name)
        for number in range(role.count):
            trainer = f"{name}-{number}"
            environment = {"TFHYBRID_STREAM": str(config), "TFHYBRID_STREAM_TRAINER": trainer}
            processes.append(
                PlacedProcess(
                    trainer, role.command, environment, role.cpus, role.numa, may_end=True
                )
            )
    return processes


def run(config: Path, tell: Callable[[dict[str, Any]], object]) -> list[QueueAccount]:
    """Runs a stream until SIGTERM or SIGINT, or until all trainers have exited with status 0.

    A process that dies is started again. At the end all processes are stopped, the sync unit writes
    a base, and an audit accounts for each row. Logs are in `processes/` in the stream's folder.
    Only the main thread may call it, because it sets signal handlers.

    Args:
        config: Path of `stream.yaml`. Token files that do not exist are created.
        tell: Function that is called on every change with the pid and the number of starts of each
            process, by name.

    Returns:
        An account for each model and queue. None if a queue or file cannot be read, which is
        logged: for example, if the stream was stopped before it had queues.

    Raises:
        ConfigError: The file is not valid, or has no trainers.
        StoreError: The stream runs already on this machine.
        OSError: The folder or a token file cannot be written.
        ValueError: Another thread than the main one called it.
    """
    config = config.absolute()
    file = YamlFile(config)
    settings = StreamSettings.of(file)
    processes = _processes(config, file, settings)
    directory = Path(settings.folder) / "processes"
    directory.mkdir(parents=True, exist_ok=True)
    for path in (settings.token_file, *settings.rights.values()):
        make_token(Path(path))
    local_launcher.run(directory, processes, tell)
    try:
        return audit(settings)
    except (TfhybridError, OSError) as error:
        _log.error("The rows of the stream are not accounted for: %s", error)
        return []
