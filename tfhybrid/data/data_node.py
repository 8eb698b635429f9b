"""The data node: reads the data sets of a job's script, splits batches, and sends their halves.

    python -m tfhybrid.data.data_node --metadata HOST:PORT --token-file FILE ...

It imports the script, whose functions make the data sets: a script that trains does so behind
`if __name__ == "__main__":`. Each data set of each trainer has a connection and a thread of its
own.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tfhybrid.cluster.node_options import NodeOptions
from tfhybrid.cluster.registration import Registration
from tfhybrid.data.samples.sharding import Shard
from tfhybrid.data_nodes.data_streams import DataStream
from tfhybrid.data_nodes.key_links import KeyLinks
from tfhybrid.errors import ConfigError, DataError, TfhybridError
from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import answer_calls
from tfhybrid.rpc.handshake import Greeting
from tfhybrid.rpc.messages import MessageLink
from tfhybrid.rpc.server import NodeServer

_log = logging.getLogger("tfhybrid.nodes")


def load(script: str) -> ModuleType:
    """Imports a script.

    Args:
        script: A file that ends with `.py`, or the name of a module.

    Raises:
        ConfigError: It cannot be imported.
    """
    try:
        if not script.endswith(".py"):
            return importlib.import_module(script)
        path = Path(script)
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    except Exception as error:
        raise ConfigError(
            f"A data node imports its script. Received: {script}: {error!r}"
        ) from error


def maker(script: ModuleType) -> Callable[..., Iterable[Any]]:
    """Returns what makes the data sets of a script, as of `MakeDataset`.

    Args:
        script: Whose functions do.
    """

    def make(function: str, shard: tuple[int, int], arguments: Mapping[str, Any]) -> Iterable[Any]:
        makes = vars(script).get(function)
        if not callable(makes):
            raise ConfigError(
                f"The script {script.__name__} of the data nodes has the function that makes a "
                f"data set. Received: {function!r}"
            )
        try:
            made: Iterable[Any] = makes(Shard(*shard), **arguments)
        except TfhybridError:
            raise
        except Exception as error:
            raise DataError(f"{function} of {script.__name__} failed: {error!r}") from error
        return made

    return make


class DataNode:
    """The state of a data node.

    Args:
        options: With which it was started.
        script: That it reads the data sets of.
    """

    def __init__(self, options: NodeOptions, script: ModuleType) -> None:
        self._options = options
        self._make = maker(script)
        listener_socket = listener.listen(options.listen, options.port)
        host, port = listener_socket.getsockname()[:2]
        self._lock = threading.Lock()
        self._streams: list[DataStream] = []  # guarded by _lock
        self._ended = 0  # batches of streams that have ended; likewise
        self.server = NodeServer(listener_socket, options.token, self._visit, tls=options.tls)
        self._registration = Registration(options, "data", (host, port), self._numbers)

    def run(self) -> None:
        """Serves until it is stopped."""
        try:
            self.server.run()
        finally:
            self._registration.stop()

    def _numbers(self) -> Mapping[str, float]:
        with self._lock:
            sent = self._ended + sum(each.sent for each in self._streams)
            staleness = max((each.staleness for each in self._streams), default=0)
            streams = len(self._streams)
        numbers = {"streams": streams, "batches": sent, "staleness": staleness}
        return {name: float(number) for name, number in numbers.items()}

    def _visit(self, greeting: Greeting, link: MessageLink) -> None:
        """Serves a data set of a trainer until that is gone."""
        stream = DataStream(self._make, self._connect)
        with self._lock:
            self._streams.append(stream)
        _log.info("%s reads for %s", self._options.name, greeting.name)
        try:
            answer_calls(link, stream.calls())
        finally:
            stream.close()
            with self._lock:
                self._streams.remove(stream)
                self._ended += stream.sent

    def _connect(self, told: Mapping[str, Any]) -> KeyLinks:
        owners = [(str(name), (str(host), int(port))) for name, (host, port) in told["owners"]]
        return KeyLinks.connect(
            owners,
            self._options.token,
            self._options.name,
            str(told["session"]),
            float(told["silence"]),
            self._options.tls,
        )


def main() -> None:
    """Runs a data node until SIGTERM."""
    parser = NodeOptions.parser(__doc__ or "")
    parser.add_argument("--script", required=True, help="a file or a module")
    told = parser.parse_args()
    options = NodeOptions.told(told)
    # A script that looks for nodes by itself must not take this process for a trainer.
    os.environ.pop("TFHYBRID_NODES", None)
    node = DataNode(options, load(told.script))
    node.server.stop_at_signals()
    with contextlib.suppress(KeyboardInterrupt):
        node.run()


if __name__ == "__main__":
    main()
