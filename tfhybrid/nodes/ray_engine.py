"""The engine `ray`: processes on the machines of a Ray cluster that is up.

An actor on the machine that Ray chooses starts a process, watches it and starts it again. Ray
starts the actor again, elsewhere if its machine is gone. The actors outlive `tfhybrid nodes up`.
The metadata node runs on the machine where that was called, as others know its address. No tensor
goes through Ray.
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

from tfhybrid.core.whole_file import write_whole
from tfhybrid.errors import ConfigError, StoreError
from tfhybrid.nodes import placed_processes
from tfhybrid.nodes.cluster_file import Cluster
from tfhybrid.nodes.node_options import read_token
from tfhybrid.nodes.placed_processes import METADATA, PlacedProcess, processes_of
from tfhybrid.nodes.processors import share_of
from tfhybrid.nodes.watched_process import WatchedProcess

_MACHINE = "{machine}"  # in commands, the address by which Ray knows the machine
_LITTLE = 0.1  # processors that Ray reserves for a process that names none
_PLACE_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_END_SECONDS = 10.0


class Keeper:
    """An actor: keeps one process running on its machine.

    Args:
        directory: Of logs and token, on each machine.
        process: What to run.
        token: Of the cluster.
        taken: How many processors other processes on the machine want before this one.
    """

    def __init__(self, directory: str, process: PlacedProcess, token: str, taken: int) -> None:
        here = Path(directory)
        here.mkdir(parents=True, exist_ok=True)
        previous = os.umask(0o077)
        try:
            its = here / f"{process.name}.token"  # others of this machine write theirs just now
            write_whole(its, token.encode())
            its.replace(here / "token")
        finally:
            os.umask(previous)
        address = importlib.import_module("ray").util.get_node_ip_address()
        command = tuple(address if part == _MACHINE else part for part in process.command)
        self._watched = WatchedProcess(
            dataclasses.replace(process, command=command),
            here / f"{process.name}.log",
            share_of(process, taken),
        )
        self._ending = threading.Event()
        # One thread: the kernel ends the process with the thread that started it.
        self._thread = threading.Thread(target=self._run, name="tfhybrid-keeper", daemon=True)
        self._thread.start()

    def told(self) -> dict[str, int | None]:
        """Returns the process's number, how often it was started, and the actor's own number."""
        return {"pid": self._watched.pid, "starts": self._watched.starts, "keeper": os.getpid()}

    def end(self) -> None:
        """Ends the process, and waits until it is gone."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_SECONDS):
            self._watched.look()
        self._watched.end()
        self._watched.wait(_END_SECONDS)


def start(cluster: Cluster) -> None:
    """Places the processes of a cluster; they stay when this process ends.

    Args:
        cluster: What to start.

    Raises:
        ConfigError: Ray is not installed, or its cluster asks for no token.
        StoreError: No Ray cluster is up, it has no room, or the processes run already.
    """
    settings = {name: text for name, text in os.environ.items() if name.startswith("TFHYBRID_")}
    processes = [
        dataclasses.replace(each, environment={**settings, **each.environment})
        for each in processes_of(cluster, _MACHINE)
    ]
    placed_processes.write(cluster.directory / "plan.json", processes)
    with _connected(cluster) as ray:
        if _keeper(ray, METADATA) is not None:
            raise StoreError("The nodes run already: `tfhybrid nodes down` ends them")
        try:
            _place(ray, cluster, processes)
        except BaseException:
            _remove(ray, processes)
            raise


def stop(cluster: Cluster) -> None:
    """Ends the processes of a cluster, and waits until they are gone.

    Raises:
        StoreError: None run.
    """
    with _connected(cluster) as ray:
        if _keeper(ray, METADATA) is None:
            raise StoreError(f"No nodes of {cluster.directory} run in the Ray cluster")
        _remove(ray, placed_processes.read(cluster.directory / "plan.json"))


def told(cluster: Cluster) -> dict[str, dict[str, int | None]]:
    """Returns what each actor says of its process, by name; without those being started again."""
    found = {}
    with _connected(cluster) as ray:
        for process in placed_processes.read(cluster.directory / "plan.json"):
            keeper = _keeper(ray, process.name)
            if keeper is not None:
                with contextlib.suppress(ray.exceptions.RayError):
                    found[process.name] = ray.get(keeper.told.remote(), timeout=_PLACE_SECONDS)
    return found


@contextlib.contextmanager
def _connected(cluster: Cluster) -> Iterator[Any]:
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(
            f"engine: ray needs Ray: pip install 'tfhybrid[ray]'. Received: {error}"
        ) from error
    if os.environ.get("RAY_AUTH_MODE") != "token":
        raise ConfigError(
            "Who reaches a Ray cluster can run commands on it: engine: ray wants one with "
            "RAY_AUTH_MODE=token, here and where `ray start` is called. Received: "
            f"RAY_AUTH_MODE={os.environ.get('RAY_AUTH_MODE')!r}"
        )
    try:
        ray.init(
            address=os.environ.get("RAY_ADDRESS", "auto"),
            namespace=f"tfhybrid {cluster.directory}",
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        raise StoreError(f"No Ray cluster can be joined (RAY_ADDRESS names it): {error}") from error
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
            f"The Ray cluster has no room for {[f'{each.name}: {each.cpus}' for each in placed]} "
            f"processors. Received: {ray.available_resources()}"
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
        made = ray.remote(Keeper).options(
            name=process.name,
            lifetime="detached",
            max_restarts=-1,
            num_cpus=processors,
            scheduling_strategy=strategy,
        )
        started.append(made.remote(str(cluster.directory), process, token, before))
    try:
        ray.get([each.told.remote() for each in started], timeout=_PLACE_SECONDS)
    except ray.exceptions.RayError as error:
        raise StoreError(f"A process cannot be placed: {error}") from error


def _remove(ray: Any, processes: Sequence[PlacedProcess]) -> None:
    keepers = [each for each in (_keeper(ray, its.name) for its in processes) if each is not None]
    ending = [each.end.remote() for each in keepers]
    for each in ending:
        with contextlib.suppress(ray.exceptions.RayError):  # it has died: so has its process
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
