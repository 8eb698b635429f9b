"""Comparison of the tables' replicas on all hosts, bit for bit."""

from __future__ import annotations

import socket
from typing import Any

from typing_extensions import override

from tfhybrid import distributed
from tfhybrid._deprecated import renamed_arguments, renamed_attributes
from tfhybrid.callbacks.collective_callback import CollectiveCallback
from tfhybrid.checkpoint.dense import saved_tables_of
from tfhybrid.errors import ConfigError, ReplicaError
from tfhybrid.job import current_job


@renamed_attributes(every="every_steps")
class CompareReplicas(CollectiveCallback):
    """Callback that stops a job on several hosts if the replicas of a table differ.

    Every rank must use it. Every checkpoint compares replicas anyway, without interrupting
    training. Use this callback to find the step at which a difference arises. Each leader reads all
    rows and their optimizer state while the other ranks wait, for about a second per 2 GB. On one
    host only the ranks' learning rates are compared.

    Args:
        every_steps: Number of steps between comparisons. Defaults to 1000.

    Raises:
        ConfigError: `every_steps` is out of range, or when training begins, is not a multiple of
            the model's `steps_per_execution`.
        ReplicaError: On all ranks, after a step: the replicas of a table, or the ranks' learning
            rates, differ. The message names the table, the last version at which the replicas were
            equal, and each host's digest.

    Example:

    ```python
    model.fit(dataset, callbacks=[tfhybrid.callbacks.CompareReplicas(every_steps=1000)])
    ```
    """

    @renamed_arguments(every="every_steps")
    def __init__(self, every_steps: int = 1000) -> None:
        super().__init__()
        if every_steps < 1:
            raise ConfigError(
                "every_steps must be a number of steps, at least 1. "
                f"Received: every_steps={every_steps}"
            )
        self.every_steps = every_steps
        self._equal: dict[str, int] = {}  # the last version at which a table's replicas were equal

    @override
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        super().on_train_begin(logs)
        self.check_steps("every_steps", self.every_steps)

    @override
    def after_step(self) -> None:
        if int(self.model.optimizer.iterations) % self.every_steps == 0:
            self.compare()

    @distributed.call("callbacks.CompareReplicas")
    def compare(self) -> None:
        """Compares now. Every rank must call it, between two steps.

        Raises:
            ReplicaError: On all ranks: the replicas of a table, or the ranks' learning rates,
                differ.
            NotInitializedError: The job has ended.
        """
        try:
            distributed.check_same({"learning rate": float(self.model.optimizer.learning_rate)})
        except ConfigError as error:
            raise ReplicaError(str(error)) from error
        job = current_job()
        if len(set(job.hosts)) == 1:
            return
        all_tables = saved_tables_of(self.model)
        tables = {name: table for name, table in all_tables.items() if not table.is_sharded}
        mine = {}
        if job.is_leader:
            mine = {name: (table.version, table.digest()) for name, table in tables.items()}
        by_rank = distributed.allgather_object((socket.gethostname(), mine))
        leaders = {
            f"rank {rank} on {host}": digests
            for rank, (host, digests) in enumerate(by_rank)
            if digests
        }
        for name in tables:
            by_leader = {leader: digests[name] for leader, digests in leaders.items()}
            if len(set(by_leader.values())) > 1:
                raise ReplicaError(
                    f"The replicas of table '{name}' differ; they were last equal at version "
                    f"{self._equal.get(name, 0)}. Version and digest by leader: "
                    + ", ".join(f"{leader}: {v}, {d:016x}" for leader, (v, d) in by_leader.items())
                )
        for name, table in tables.items():
            self._equal[name] = table.version
