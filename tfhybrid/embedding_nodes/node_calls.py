"""Calls from rank 0 of a job to its embedding nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from tfhybrid.rpc.calls import Caller, ask_each
from tfhybrid.rpc.remote_methods import Call, call_on, call_to

_P = ParamSpec("_P")
_T = TypeVar("_T")


class NodeCalls:
    """Control connections of rank 0, one to each embedding node; none on other ranks.

    Calls may come from several threads; a connection carries one call at a time.

    Args:
        callers: Connections in the order of the nodes; closed by `close`. Default: none.
    """

    def __init__(self, callers: Sequence[Caller] = ()) -> None:
        self._callers = list(callers)

    def __len__(self) -> int:
        """Returns the number of nodes that can be called."""
        return len(self._callers)

    def __iter__(self) -> Iterator[Caller]:
        """Yields the connections in the order of the nodes."""
        return iter(list(self._callers))

    def __getitem__(self, node: int) -> Caller:
        """Returns the connection to a node, by its number from 0."""
        return self._callers[node]

    def each(
        self, method: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> list[_T]:
        """Calls a remote method on all nodes at once and waits until all have answered.

        Args:
            method: Function of a class, such as `Engine.digest`.
            *args: Positional arguments of the method after `self`, the same for all nodes.
            **kwargs: Keyword arguments of the method.

        Returns:
            The results, in the order of the nodes.

        Raises:
            TfhybridError: A node failed or is gone. The first failure is raised, once all nodes
                have answered.
        """
        return self.ask(call_to(method, *args, **kwargs))

    def each_on(
        self,
        target: Any,
        method: Callable[Concatenate[Any, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> list[_T]:
        """Calls a remote method of an object that each node looks up, on all nodes at once.

        Args:
            target: Value that names the object.
            method: Function of a class, such as `TableWriter.clear`.
            *args: Positional arguments of the method after `self`, the same for all nodes.
            **kwargs: Keyword arguments of the method.

        Returns:
            The results, in the order of the nodes.

        Raises:
            TfhybridError: A node failed or is gone. The first failure is raised, once all nodes
                have answered.
        """
        return self.ask(call_on(target, method, *args, **kwargs))

    def ask(self, call: Call[_T]) -> list[_T]:
        """Makes a call on all nodes at once and waits until all have answered.

        Args:
            call: The call.

        Returns:
            The results, in the order of the nodes.

        Raises:
            TfhybridError: A node failed or is gone. The first failure is raised, once all nodes
                have answered.
        """
        return ask_each([(caller, call) for caller in self._callers])

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
