"""The data node: reads the data sets of a job's script, splits batches, and sends their halves.

    tfhybrid node data --name NAME --metadata HOST:PORT --token-file FILE --script SCRIPT ...

It imports the script, whose functions make the data sets. A script that also trains must do so
under `if __name__ == "__main__":`. Each data set of each trainer has a connection and a thread of
its own.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tfhybrid._deprecated import run_renamed
from tfhybrid.cluster.node_options import NodeOptions
from tfhybrid.cluster.registration import Registration
from tfhybrid.data.samples.sharding import Shard
from tfhybrid.data_nodes.data_streams import DataStream, OpenedEpoch
from tfhybrid.data_nodes.key_links import KeyLinks
from tfhybrid.errors import ConfigError, DataError, TfhybridError
from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import answer_calls
from tfhybrid.rpc.handshake import Handshake
from tfhybrid.rpc.messages import MessageLink
from tfhybrid.rpc.peer import Peer
from tfhybrid.rpc.remote_methods import served
from tfhybrid.rpc.server import NodeServer
from tfhybrid.settings import forget_nodes

_log = logging.getLogger("tfhybrid.data")


def load(script: str) -> ModuleType:
    """Imports a script. A file's directory is added to `sys.path`.

    Args:
        script: Path of a file that ends with `.py`, or name of a module.

    Returns:
        The module.

    Raises:
        ConfigError: The script cannot be imported.
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
            f"A data node imports its script, and that failed. Received: {script}: {error!r}"
        ) from error


def maker(script: ModuleType) -> Callable[..., Iterable[Any]]:
    """Returns the `MakeDataset` of a script, which calls the script's functions by name.

    Args:
        script: Module whose functions make data sets.

    Returns:
        A function of a function's name, a shard and arguments, which returns a data set. It raises
        `ConfigError` if the script has no such function, and `DataError` if the function fails.
    """

    def make(function: str, shard: tuple[int, int], arguments: Mapping[str, Any]) -> Iterable[Any]:
        make_dataset = vars(script).get(function)
        if not callable(make_dataset):
            raise ConfigError(
                f"The script {script.__name__} of the data nodes must have the function that makes "
                f"a data set. Received: {function!r}"
            )
        try:
            dataset: Iterable[Any] = make_dataset(Shard(*shard), **arguments)
        except TfhybridError:
            raise
        except Exception as error:
            raise DataError(f"{function} of {script.__name__} failed: {error!r}") from error
        return dataset

    return make


class DataNode:
    """Data node: its listener, its registration, and the data sets that it serves.

    The node listens once it is constructed, and a thread registers it; `run` serves the
    connections, each on a thread of its own.

    Args:
        options: Options of the node, as on its command line.
        script: Module whose functions make the data sets. A trainer names the function.

    Attributes:
        server: Server of the connections, whose `stop` ends `run`; any thread may call it.

    Raises:
        OSError: The address is not available.
    """

    def __init__(self, options: NodeOptions, script: ModuleType) -> None:
        self._options = options
        self._make = maker(script)
        listener_socket = listener.listen(options.listen, options.port)
        host, port = listener_socket.getsockname()[:2]
        self._lock = threading.Lock()
        self._streams: list[DataStream] = []  # guarded by _lock
        self._ended = 0  # batches sent by streams that have ended; guarded by _lock
        self.server = NodeServer(listener_socket, options.token, self._visit, tls=options.tls)
        self._registration = Registration(options, "data", (host, port), self._numbers)

    def run(self) -> None:
        """Serves trainers until `server.stop` is called, by another thread or a signal handler.

        Call it once. When it returns or raises, the registration has ended.

        Raises:
            StoreError: The TLS relay has ended, so no connection can be accepted any more.
        """
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

    def _visit(self, handshake: Handshake, link: MessageLink) -> None:
        """Serves a data set of a trainer until the trainer disconnects. Runs on its own thread."""
        stream = DataStream(self._make, self._connect)
        with self._lock:
            self._streams.append(stream)
        _log.info("%s reads a data set for %s", self._options.name, handshake.name)
        try:
            answer_calls(link, served(stream))
        finally:
            stream.close()
            with self._lock:
                self._streams.remove(stream)
                self._ended += stream.sent

    def _connect(self, opened: OpenedEpoch) -> KeyLinks:
        """Connects to the owners that an epoch names."""
        token, tls = self._options.token, self._options.tls
        owners = [Peer(node, at, token, opened.silence, tls) for node, at in opened.owners]
        return KeyLinks.connect(owners, self._options.name, opened.session)


def main(options: NodeOptions, script: str) -> None:
    """Runs a data node until SIGTERM or SIGINT. Only the main thread may call it.

    Args:
        options: Options of the node, as on its command line.
        script: Path of a file that ends with `.py`, or name of a module.

    Raises:
        ConfigError: The script cannot be imported.
        OSError: The address is not available.
    """
    # A script that looks for nodes by itself must not take this process for a trainer.
    forget_nodes()
    node = DataNode(options, load(script))
    node.server.stop_at_signals()
    with contextlib.suppress(KeyboardInterrupt):
        node.run()


if __name__ == "__main__":
    run_renamed("python -m tfhybrid.data.data_node", "tfhybrid node data")
