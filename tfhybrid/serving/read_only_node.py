"""The read-only node: it follows publications, and serves processes that cannot hold the weights.

Each answer is of one publication. Rows travel in plain messages and not through a job's row
service, which is made for reads between single updates: a publication changes many rows at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tfhybrid._remote import remote
from tfhybrid.monitoring import metrics
from tfhybrid.rpc.remote import Remote
from tfhybrid.rpc.remote_methods import client
from tfhybrid.serving.reader import PublishedWeights, Reader
from tfhybrid.serving.served_rows import keys_of
from tfhybrid.stream.weights.model_spec import ModelSpec


class ReadOnlyNode:
    """Calls that a read-only node answers. Thread-safe.

    Args:
        reader: Reader that follows the publications.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @remote
    def read(self, keys: Mapping[str, np.ndarray], dense: bool) -> PublishedWeights:
        """Returns rows, and optionally the dense weights, of one publication.

        Args:
            keys: int64 of any shape, by table.
            dense: Whether to return the dense weights too.

        Raises:
            PublicationError: The node has not read a publication yet.
            ConfigError: The model has no such table.
            DataError: A key is not a whole number of int64.
        """
        return self._reader.read(dict(keys), dense=dense)

    @remote
    def spec(self) -> ModelSpec:
        """Returns tables and dense weights of the model.

        Raises:
            PublicationError: The node has not read a publication yet.
        """
        return self._reader.spec

    @remote
    def stats(self) -> dict[str, dict[str, float]]:
        """Returns the metrics of the node's process, by metric and label."""
        return metrics.as_dict(metrics.of_stream())


class RemoteReader:
    """Reader of the weights that a read-only node has, for a process that cannot hold them.

    Thread-safe. It connects at the first call, and again if the node was restarted. A call fails
    with `StreamError` once the node has been away for two minutes.

    Args:
        address: Address of the node, as `host:port`.
        token: Token that the node expects.
        name: Name of this process, for the logs of the node.

    Raises:
        ConfigError: The address is not `host:port`.

    Example:

    ```python
    reader = tfhybrid.serving.RemoteReader("10.0.0.7:7003", settings.token, "frontend 4")
    weights = reader.read({"item": np.array([3, 7])})
    ```
    """

    def __init__(self, address: str, token: str, name: str) -> None:
        self._remote = Remote(address, token, name, "read-only node")
        self._node = client(ReadOnlyNode, self._remote)

    @property
    def spec(self) -> ModelSpec:
        """Tables and dense weights of the model, asked from the node at each access.

        Raises:
            PublicationError: The node has not read a publication yet.
            StreamError: The node does not answer.
        """
        return self._node.spec()

    def read(self, keys: dict[str, np.ndarray], *, dense: bool = False) -> PublishedWeights:
        """Returns rows, and optionally the dense weights, of one publication.

        Args:
            keys: int64 of any shape, by table.
            dense: Whether to return the dense weights too. Default false.

        Raises:
            PublicationError: The node has not read a publication yet.
            ConfigError: The model has no such table.
            DataError: A key is missing (masked), or not a whole number of int64.
            StreamError: The node does not answer.
        """
        # Here, because a mask does not travel.
        return self._node.read({table: keys_of(table, each) for table, each in keys.items()}, dense)

    def close(self) -> None:
        """Closes the connection; a later call opens it again."""
        self._remote.close()
