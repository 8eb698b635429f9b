"""A provider and a sync unit on threads of this process, and a small Keras model for them."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
from tensorflow import keras

import tfhybrid
from tests.support.stream.stream_file import write_stream
from tfhybrid.cluster.node_options import make_token
from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import answer_calls
from tfhybrid.rpc.remote_methods import served
from tfhybrid.rpc.server import NodeServer
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.stream_settings import StreamSettings


class Site:
    def __init__(self, folder: Path, memory: Path, **choices) -> None:
        make_token(folder / "token")
        columns = {
            "item": "int64",
            "history": "list<int64>",
            "medium": "string",
            "label": "float32",
        }
        settings = {"columns": columns, "lease": {"rows": 64}, "fsync": "never", **choices}
        self.config = write_stream(folder, memory, **settings)
        self.settings = StreamSettings.read(self.config)
        Path(self.settings.folder).mkdir()
        self.unit = self.settings.sync_unit()
        self._servers = [self._serve(self.settings.sync, self.unit.calls)]
        self.provider = self.settings.open_provider()
        self._servers.append(self._serve(self.settings.provider, served(self.provider)))

    def _serve(self, address: str, calls) -> tuple[NodeServer, threading.Thread]:
        host, port = address.split(":")
        server = NodeServer(
            listener.listen(host, int(port)),
            self.settings.token,
            lambda _, link: answer_calls(link, calls),
        )
        thread = threading.Thread(target=server.run)
        thread.start()
        return server, thread

    def restart_provider(self) -> None:
        """Replaces the provider by a new one at the same address."""
        server, thread = self._servers.pop()
        server.stop()
        thread.join()
        self.provider.close()
        self.provider = self.settings.open_provider()
        self._servers.append(self._serve(self.settings.provider, served(self.provider)))

    def put(self, rows: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        found = [
            {
                "item": int(random.integers(0, 50)),
                "history": random.integers(0, 30, random.integers(0, 4)).tolist(),
                "medium": "video",
                "label": float(random.integers(0, 2)),
            }
            for _ in range(rows)
        ]
        self.provider.put("test", seed, Record(json.dumps(found).encode()))

    def queue(self, name: str) -> LogQueue:
        return LogQueue(self.settings.queue_address(name))

    @property
    def journal(self) -> Path:
        return Path(self.settings.folder) / "models" / "ads" / "journal"

    def close(self) -> None:
        for server, thread in self._servers:
            server.stop()
            thread.join()
        self.provider.close()
        self.unit.close()


def small_model(optimizer: keras.optimizers.Optimizer | None = None) -> keras.Model:
    config = tfhybrid.TableConfig(dim=4, optimizer=tfhybrid.optimizers.Adagrad(0.1))
    bag = tfhybrid.TableConfig(dim=4, combiner="mean", optimizer=tfhybrid.optimizers.SGD(0.1))
    item = keras.Input((), dtype="int64", name="item")
    history = keras.Input((None,), dtype="int64", ragged=True, name="history")
    embedded = [
        tfhybrid.layers.Embedding(config, table="items", name="of_item")(item),
        tfhybrid.layers.Embedding(bag, table="histories", name="of_history")(history),
    ]
    logit = keras.layers.Dense(1)(keras.layers.Concatenate()(embedded))
    model = keras.Model({"item": item, "history": history}, logit)
    optimizer = tfhybrid.DistributedOptimizer(optimizer or keras.optimizers.SGD(0.1))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    return model


TABLES = {"items": "item", "histories": "history"}
