"""Launcher `ray`: runs processes on the machines of a running Ray cluster.

An actor on a machine that Ray chooses starts a process, watches it and restarts it. Ray restarts
the actor, on another machine if its own is gone. The actors outlive `tfhybrid nodes up`. The
metadata node runs on the machine where that was called, because its address is in the cluster
file. No tensor goes through Ray.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tfhybrid import settings
from tfhybrid.cluster import placed_processes
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.cluster.node_options import read_token
from tfhybrid.cluster.placed_processes import METADATA, PlacedProcess, processes_of
from tfhybrid.cluster.processors import processors_of_process
from tfhybrid.cluster.watched_process import WatchedProcess
from tfhybrid.core.whole_file import write_whole
from tfhybrid.errors import ConfigError, StoreError

_MACHINE = "{machine}"  # stands in commands for Ray's address of the machine
_LITTLE = 0.1  # processors that Ray reserves for a process with `cpus: 0`
_PLACE_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0


class ProcessKeeper:
    """Ray actor that keeps one process running on its machine.

    Args:
        directory: Directory of logs and token on each machine; created if it does not exist.
        process: Process to run.
        token: Token of the cluster.
        taken: Number of processors that earlier processes on the machine use.

    Raises:
        ConfigError: The machine has too few processors, or lacks the NUMA node.
        OSError: A file of the directory cannot be written.
    """

    def __init__(self, directory: str, process: PlacedProcess, token: str, taken: int) -> None:
        here = Path(directory)
        here.mkdir(parents=True, exist_ok=True)
        previous = os.umask(0o077)
        try:
            # Other actors of this machine may write the token at the same time.
            temporary = here / f"{process.name}.token"
            write_whole(temporary, token.encode())
            temporary.replace(here / "token")
        finally:
            os.umask(previous)
        address = importlib.import_module("ray").util.get_node_ip_address()
        command = tuple(address if part == _MACHINE else part for part in process.command)
        self._watched = WatchedProcess(
            dataclasses.replace(process, command=command),
            here / f"{process.name}.log",
            processors_of_process(process, taken),
        )
        self._ending = threading.Event()
        # One thread does all, because the kernel ends the process with the thread that started it.
        self._thread = threading.Thread(target=self._run, name="tfhybrid-keeper", daemon=True)
        self._thread.start()

    def told(self) -> dict[str, int | None]:
        """Returns process id, number of starts, and process id of the actor.

        The process id is `None` while the process does not run.

        Returns:
            The numbers by name: `pid`, `starts` and `keeper`.
        """
        return {"pid": self._watched.pid, "starts": self._watched.starts, "keeper": os.getpid()}

    def end(self) -> None:
        """Stops the process, kills it after 10 s, and waits until it has ended."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            self._watched.look()
        self._watched.end()
        self._watched.wait(_END_SECONDS)


def start(cluster: Cluster) -> None:
    """Places the processes of a cluster on a Ray cluster, where they outlive this process.

    If one of them cannot be placed, all are removed.

    Args:
        cluster: Cluster to start.

    Raises:
        ConfigError: Ray is not installed, or the Ray cluster does not use token authentication.
        StoreError: No Ray cluster can be reached, it has too few free processors, or the processes
            already run.
        OSError: The list of processes cannot be written.
    """
    variables = settings.own_variables()
    processes = [
        dataclasses.replace(each, environment={**variables, **each.environment})
        for each in processes_of(cluster, _MACHINE)
    ]
    placed_processes.write(cluster.directory / "plan.json", processes)
    with _connected(cluster) as ray:
        if _keeper(ray, METADATA) is not None:
            raise StoreError("The nodes already run: `tfhybrid nodes down` stops them")
        try:
            _place(ray, cluster, processes)
        except BaseException:
            _remove(ray, processes)
            raise


def stop(cluster: Cluster) -> None:
    """Stops the processes of a cluster and waits until they have ended.

    Args:
        cluster: Cluster to stop.

    Raises:
        ConfigError: Ray is not installed, or the Ray cluster does not use token authentication.
        StoreError: No Ray cluster can be reached, or the processes do not run.
        OSError: The list of processes cannot be read.
    """
    with _connected(cluster) as ray:
        if _keeper(ray, METADATA) is None:
            raise StoreError(f"No nodes of {cluster.directory} run in the Ray cluster")
        _remove(ray, placed_processes.read(cluster.directory / "plan.json"))


def told(cluster: Cluster) -> dict[str, dict[str, int | None]]:
    """Returns process id, number of starts, and actor's process id of each process, by its name.

    Left out are processes whose actor does not run at the moment.

    Args:
        cluster: Cluster that runs on Ray.

    Raises:
        ConfigError: Ray is not installed, or the Ray cluster does not use token authentication.
        StoreError: No Ray cluster can be reached.
        OSError: The list of processes cannot be read.
    """
    states = {}
    with _connected(cluster) as ray:
        for process in placed_processes.read(cluster.directory / "plan.json"):
            keeper = _keeper(ray, process.name)
            if keeper is not None:
                with contextlib.suppress(ray.exceptions.RayError):
                    states[process.name] = ray.get(keeper.told.remote(), timeout=_PLACE_SECONDS)
    return states


@contextlib.contextmanager
def _connected(cluster: Cluster) -> Iterator[Any]:
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(
            f"launcher: ray needs Ray: pip install 'tfhybrid[ray]'. Received: {error}"
        ) from error
    if settings.ray_auth_mode() != "token":
        raise ConfigError(
            "Anyone who can reach a Ray cluster can run commands on it. So `launcher: ray` needs "
            "RAY_AUTH_MODE=token, here and where `ray start` is called. Received: "
            f"RAY_AUTH_MODE={settings.ray_auth_mode()!r}"
        )
    try:
        ray.init(
            address=settings.ray_address(),
            namespace=f"tfhybrid {cluster.directory}",
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        raise StoreError(
            f"Cannot connect to a Ray cluster. Set RAY_ADDRESS to its address: {error}"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _place(ray: Any, cluster: Cluster, processes: Sequence[PlacedProcess]) -> None:
    token = read_token(cluster.token_file)
    placed = [each for each in processes if each.name != METADATA]
    group = ray.util.placement_group(
        [{"CPU": each.cpus or _LITTLE} for each in placed],
        strategy="SPREAD",
        name="nodes",
        lifetime="detached",
    )
    if not group.wait(_PLACE_SECONDS):
        raise StoreError(
            "The Ray cluster has too few free processors for "
            f"{[f'{each.name}: {each.cpus}' for each in placed]}. "
            f"Received: {ray.available_resources()}"
        )
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    here = strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    machines = ray.util.placement_group_table(group)["bundles_to_node_id"]
    taken: dict[str, int] = {}
    started = []
    for process in processes:
        before, strategy, processors = 0, here, 0.0
        if process in placed:
            bundle = placed.index(process)
            before = taken.get(machines[bundle], 0)
            taken[machines[bundle]] = before + process.cpus
            strategy = strategies.PlacementGroupSchedulingStrategy(group, bundle)
            processors = process.cpus or _LITTLE
        keeper = ray.remote(ProcessKeeper).options(
            name=process.name,
            lifetime="detached",
            max_restarts=-1,
            num_cpus=processors,
            scheduling_strategy=strategy,
        )
        started.append(keeper.remote(str(cluster.directory), process, token, before))
    try:
        ray.get([each.told.remote() for each in started], timeout=_PLACE_SECONDS)
    except ray.exceptions.RayError as error:
        raise StoreError(f"A process cannot be placed: {error}") from error


def _remove(ray: Any, processes: Sequence[PlacedProcess]) -> None:
    actors = [_keeper(ray, process.name) for process in processes]
    keepers = [each for each in actors if each is not None]
    ending = [each.end.remote() for each in keepers]
    for each in ending:
        with contextlib.suppress(ray.exceptions.RayError):  # if it has died, so has its process
            ray.get(each, timeout=2 * _END_SECONDS)
    for each in keepers:
        ray.kill(each)
    with contextlib.suppress(ValueError):
        ray.util.remove_placement_group(ray.util.get_placement_group("nodes"))


def _keeper(ray: Any, name: str) -> Any:
    try:
        return ray.get_actor(name)
    except ValueError:
        return None
