"""The read-only node: follows publications, and answers reads of processes that cannot hold them.

Rows travel in messages, which all are of one publication. The row service of a job is not used: its
readers read while rows change, one update at a time, and a publication is many rows at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tfhybrid.monitoring import metrics
from tfhybrid.rpc.calls import Answer, Called
from tfhybrid.rpc.remote import Remote
from tfhybrid.serving.reader import Reader, Weights
from tfhybrid.stream.sync_unit.stats import as_dict
from tfhybrid.stream.weights.model_spec import ModelSpec


def reader_calls(reader: Reader) -> dict[str, Called]:
    """Returns what may be asked of a read-only node.

    Args:
        reader: Of the publications that it follows.
    """

    def read(arguments: dict[str, Any], arrays: dict[str, np.ndarray]) -> Answer:
        found = reader.read(arrays, dense=bool(arguments["dense"]))
        dense = {f"dense/{i}": each for i, each in enumerate(found.dense)}
        return found.number, {
            **{f"rows/{name}": rows for name, rows in found.rows.items()},
            **dense,
        }

    def spec(_: dict[str, Any], __: dict[str, np.ndarray]) -> Answer:
        return reader.spec.to_json(), {}

    def stats(_: dict[str, Any], __: dict[str, np.ndarray]) -> Answer:
        return as_dict(metrics.of_stream()), {}

    return {"read": read, "spec": spec, "stats": stats}


class RemoteReader:
    """The weights of a read-only node, for a process without them; as `Reader`.

    Args:
        address: `host:port` of the node.
        token: That it wants to be shown.
        name: What this process calls itself.

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
        """What the model consists of; see `Reader.spec`."""
        return ModelSpec.from_json(self._remote.ask("spec")[0])

    def read(self, keys: dict[str, np.ndarray], *, dense: bool = False) -> Weights:
        """Returns rows of tables, and dense weights if asked for; see `Reader.read`."""
        number, arrays = self._remote.ask("read", {"dense": dense}, keys)
        rows = {name: arrays[f"rows/{name}"] for name in keys}
        count = sum(name.startswith("dense/") for name in arrays)
        return Weights(int(number), rows, [arrays[f"dense/{i}"] for i in range(count)])

    def close(self) -> None:
        """Ends the connection."""
        self._remote.close()
