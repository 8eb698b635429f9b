"""The read-only node: it follows publications, and serves processes that cannot hold the weights.

Each answer is of one publication. Rows travel in plain messages and not through a job's row
service, which is made for reads between single updates: a publication changes many rows at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfhybrid.monitoring import metrics
from tfhybrid.rpc.calls import Answer, Called
from tfhybrid.rpc.remote import Remote
from tfhybrid.serving.reader import PublishedWeights, Reader
from tfhybrid.stream.sync_unit.stats import as_dict
from tfhybrid.stream.weights.model_spec import ModelSpec


def reader_calls(reader: Reader) -> dict[str, Called]:
    """Returns the functions that clients may call on a read-only node, by name.

    `RemoteReader` calls `read` and `spec`; `stats` returns the process's metrics.

    Args:
        reader: Reader that follows the publications.
    """

    def read(arguments: dict[str, Any], arrays: dict[str, np.ndarray]) -> Answer:
        weights = reader.read(arrays, dense=bool(arguments["dense"]))
        dense = {f"dense/{i}": each for i, each in enumerate(weights.dense)}
        return weights.number, {
            **{f"rows/{name}": rows for name, rows in weights.rows.items()},
            **dense,
        }

    def spec(_: dict[str, Any], __: dict[str, np.ndarray]) -> Answer:
        return reader.spec.to_json(), {}

    def stats(_: dict[str, Any], __: dict[str, np.ndarray]) -> Answer:
        return as_dict(metrics.of_stream()), {}

    return {"read": read, "spec": spec, "stats": stats}


class RemoteReader:
    """Reader of the weights that a read-only node has, for a process that cannot hold them.

    Thread-safe. It connects at the first call, and again if the node was restarted. A call fails
    with `StreamError` once the node has been away for two minutes.

    Args:
        address: Address of the node, as `host:port`.
        token: Token that the node expects.
        name: Name of this process, for the logs of the node.

    Example:

    ```python
    reader = tfhybrid.serving.RemoteReader("10.0.0.7:7003", settings.token, "frontend 4")
    weights = reader.read({"item": np.array([3, 7])})
    ```
    """

    def __init__(self, address: str, token: str, name: str) -> None:
        self._remote = Remote(address, token, name, "read-only node")

    @property
    def spec(self) -> ModelSpec:
        """Tables and dense weights of the model, asked from the node at each access.

        Raises:
            PublicationError: The node has not read a publication yet.
            StreamError: The node does not answer.
        """
        return ModelSpec.from_json(self._remote.ask("spec")[0])

    def read(self, keys: dict[str, np.ndarray], *, dense: bool = False) -> PublishedWeights:
        """Returns rows, and optionally the dense weights, of one publication.

        Args:
            keys: int64 of any shape, by table.
            dense: Whether to return the dense weights too. Default false.

        Raises:
            PublicationError: The node has not read a publication yet.
            ConfigError: The model has no such table.
            StreamError: The node does not answer.
        """
        number, arrays = self._remote.ask("read", {"dense": dense}, keys)
        rows = {name: arrays[f"rows/{name}"] for name in keys}
        count = sum(name.startswith("dense/") for name in arrays)
        return PublishedWeights(int(number), rows, [arrays[f"dense/{i}"] for i in range(count)])

    def close(self) -> None:
        """Closes the connection; a later call opens it again."""
        self._remote.close()
