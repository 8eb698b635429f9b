"""Calls from rank 0 of a job to its embedding nodes, one node or all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.rpc.calls import Caller, ask_together
from tfhybrid.rpc.messages import Arrays


class NodeCalls:
    """Control connections of rank 0, one to each embedding node.

    Calls may come from several threads; a connection carries one call at a time.

    Args:
        callers: Connections in the order of the nodes; closed by `close`.
    """

    def __init__(self, callers: Sequence[Caller]) -> None:
        self._callers = list(callers)

    def __len__(self) -> int:
        """Returns the number of nodes, one for each shard."""
        return len(self._callers)

    def ask(
        self, node: int, call: str, arguments: Mapping[str, Any], arrays: Arrays | None = None
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Calls one node and waits for its answer.

        Args:
            node: Number of the node, from 0.
            call: Name of the call.
            arguments: Arguments of the call, which JSON can represent.
            arrays: Arrays to send with them. Default: none.

        Returns:
            The result, and the arrays that came with it.

        Raises:
            TfhybridError: The node raised it; the message names the node.
            StoreError: The node is gone, or the connection is closed.
        """
        return self._callers[node].ask(call, arguments, arrays)

    def ask_all(
        self, call: str, arguments: Mapping[str, Any], arrays: Arrays | None = None
    ) -> list[tuple[Any, dict[str, np.ndarray]]]:
        """Calls all nodes at once and waits until all have answered.

        Args:
            call: Name of the call.
            arguments: Arguments of the call, the same for all nodes.
            arrays: Arrays to send with them. Default: none.

        Returns:
            The result and arrays of each node, in the order of the nodes.

        Raises:
            TfhybridError: A node failed or is gone. The first failure is raised, once all nodes
                have answered.
        """
        return ask_together(self._callers, call, arguments, arrays)

    def results(
        self, call: str, arguments: Mapping[str, Any], arrays: Arrays | None = None
    ) -> list[Any]:
        """Calls all nodes at once, waits for all answers, and returns the results in node order.

        Args:
            call: Name of the call.
            arguments: Arguments of the call, the same for all nodes.
            arrays: Arrays to send with them. Default: none.

        Raises:
            TfhybridError: A node failed or is gone. The first failure is raised, once all nodes
                have answered.
        """
        return [result for result, _ in self.ask_all(call, arguments, arrays)]

    def replace(self, node: int, caller: Caller) -> Caller:
        """Replaces the connection to a node, and returns the old one without closing it.

        Args:
            node: Number of the node, from 0.
            caller: Connection to the process that serves the node's shard from now on.
        """
        before, self._callers[node] = self._callers[node], caller
        return before

    def close(self) -> None:
        """Closes the connections, which frees the nodes for another job."""
        for caller in self._callers:
            caller.close()
