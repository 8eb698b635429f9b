"""What rank 0 of a job asks of all embedding nodes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.rpc.calls import Caller, ask_together
from tfhybrid.rpc.messages import Arrays


class NodeCalls:
    """The control connections of rank 0, one to each embedding node.

    Args:
        callers: In the order of nodes.
    """

    def __init__(self, callers: Sequence[Caller]) -> None:
        self._callers = list(callers)

    def __len__(self) -> int:
        """Returns how many nodes there are."""
        return len(self._callers)

    def ask(
        self, node: int, call: str, arguments: Mapping[str, Any], arrays: Arrays | None = None
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Asks one node; as of `Caller.ask`."""
        return self._callers[node].ask(call, arguments, arrays)

    def ask_all(
        self, call: str, arguments: Mapping[str, Any], arrays: Arrays | None = None
    ) -> list[tuple[Any, dict[str, np.ndarray]]]:
        """Asks all nodes and waits for all; as of `Caller.ask`.

        Raises:
            TfhybridError: What one of them raised, once all have answered.
        """
        return ask_together(self._callers, call, arguments, arrays)

    def results(
        self, call: str, arguments: Mapping[str, Any], arrays: Arrays | None = None
    ) -> list[Any]:
        """Asks all nodes; returns their results alone."""
        return [result for result, _ in self.ask_all(call, arguments, arrays)]

    def replace(self, node: int, caller: Caller) -> Caller:
        """Asks another process for a node from now on; returns the connection to the one before."""
        before, self._callers[node] = self._callers[node], caller
        return before

    def close(self) -> None:
        """Ends the connections; the nodes are free for another job then."""
        for caller in self._callers:
            caller.close()
