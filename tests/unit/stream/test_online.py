"""Keras models trained online: over a real provider and sync unit, on threads of this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import load
from tensorflow import keras

import tfhybrid
from tests.reference.asynchronous import Replay
from tests.stream.conftest import two_free_ports
from tfhybrid.errors import ConfigError
from tfhybrid.nodes import door
from tfhybrid.nodes.calls import answer_calls
from tfhybrid.nodes.server import NodeServer
from tfhybrid.stream.log_queue import LogQueue
from tfhybrid.stream.model_spec import DENSE_TABLE, ModelSpec, dense_weights
from tfhybrid.stream.provider_calls import provider_calls
from tfhybrid.stream.queue import Record
from tfhybrid.stream.settings import StreamSettings
from tfhybrid.stream.weight_update import WeightUpdate

ROWS = 300


class Site:
    def __init__(self, folder: Path, memory: Path, **choices) -> None:
        port = two_free_ports()
        (folder / "token").write_text("secret")
        settings = {
            "folder": str(folder / "stream"),
            "memory": str(memory),
            "provider": f"127.0.0.1:{port}",
            "sync": f"127.0.0.1:{port + 1}",
            "token_file": str(folder / "token"),
            "columns": {
                "item": "int64",
                "history": "list<int64>",
                "medium": "string",
                "label": "float32",
            },
            "routes": {
                "columns": ["medium"],
                "queues": {"video": "video"},
                "models": {"ads": ["video"]},
            },
            "lease": {"rows": 64},
            "fsync": "never",
            **choices,
        }
        self.config = folder / "stream.yaml"
        self.config.write_text(yaml.safe_dump(settings))
        self.settings = StreamSettings.read(self.config)
        Path(self.settings.folder).mkdir()
        self.unit = self.settings.sync_unit()
        self._servers = [self._serve(self.settings.sync, self.unit.calls)]
        self.provider = self.settings.open_provider()
        self._servers.append(self._serve(self.settings.provider, provider_calls(self.provider)))

    def _serve(self, address: str, calls) -> tuple[NodeServer, threading.Thread]:
        host, port = address.split(":")
        server = NodeServer(
            door.listen(host, int(port)),
            self.settings.token,
            lambda _, link: answer_calls(link, calls),
        )
        thread = threading.Thread(target=server.run)
        thread.start()
        return server, thread

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

    def replay(self) -> tuple[Replay, list[WeightUpdate]]:
        """The journal's updates, by NumPy."""
        journal = LogQueue(Path(self.settings.folder) / "models" / "ads" / "journal")
        records = [record for _, record in journal.read(0).records]
        (model,) = [each for each in records if each.attributes["kind"] == "model"]
        spec = ModelSpec.from_json(model.attributes["spec"])
        arrays = load(model.payload)
        replay = Replay(spec, [arrays[str(i)] for i in range(len(spec.dense))])
        updates = [
            WeightUpdate.from_record(each)
            for each in records
            if each.attributes["kind"] == "update"
        ]
        for update in updates:
            replay.apply(update)
        return replay, updates

    def close(self) -> None:
        for server, thread in self._servers:
            server.stop()
            thread.join()
        self.provider.close()
        self.unit.close()


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path, job: None) -> Iterator[Site]:
    site = Site(tmp_path, shm_directory)
    yield site
    site.close()


def _model() -> keras.Model:
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
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    return model


TABLES = {"items": "item", "histories": "history"}


def _train(site: Site, **choices):
    leases = tfhybrid.stream.Leases(
        site.config, **{"model": "ads", "batch_size": 16, "wait": False, **choices}
    )
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    model = _model()
    history = model.fit(data, callbacks=[tfhybrid.stream.Online(leases, tables=TABLES)], verbose=0)
    return leases, model, history


def test_fit_trains_each_row_once_and_equals_the_replay(site: Site):
    site.put(ROWS)
    _, model, _ = _train(site)
    replay, updates = site.replay()
    assert [update.rows for update in updates] == [64, 64, 64, 64, 44]
    unit = site.unit.models["ads"]
    keys = {"items": np.arange(60), "histories": np.arange(40)}
    keys[DENSE_TABLE] = updates[0].keys[DENSE_TABLE]
    rows, version = unit.read(keys)
    assert version == len(updates)
    for name in keys:
        np.testing.assert_array_equal(rows[name], replay.lookup(name, keys[name]), err_msg=name)
    # The trainer's weights are those, but for the rounding of a sum of differences.
    dense = dense_weights(rows[DENSE_TABLE], replay.spec.dense)
    for variable, value in zip(model.trainable_variables[-2:], dense[-2:], strict=False):
        np.testing.assert_allclose(np.asarray(variable), value, rtol=1e-5, atol=1e-6)
    assert unit.standing()["video"][1] == 0


def test_training_goes_on_where_it_ended(site: Site):
    site.put(100)
    _train(site)
    tfhybrid.shutdown()
    tfhybrid.init()  # another trainer, with fresh tables
    site.put(100, seed=1)
    _train(site)
    replay, updates = site.replay()
    assert sum(update.rows for update in updates) == 200
    # The second one began from the weights that the first one left, not from its own.
    assert updates[2].version == 2
    first = np.abs(updates[2].values["items"]).max()
    assert first < 0.2
    rows, _ = site.unit.models["ads"].read({"items": np.arange(60)})
    np.testing.assert_array_equal(rows["items"], replay.lookup("items", np.arange(60)))


def test_what_cannot_be(site: Site):
    site.put(10)
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=4, wait=False)
    with pytest.raises(ConfigError, match=r"columns of the stream are .*Received: \['price'\]"):
        tfhybrid.stream.dataset(leases, features=["price"], label="label")
    with pytest.raises(ConfigError, match="at least one row"):
        tfhybrid.stream.Leases(site.config, model="ads", batch_size=0)
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    online = tfhybrid.stream.Online(leases, tables={"items": "item"})
    with pytest.raises(ConfigError, match=r"Online wants the column of each table"):
        _model().fit(data, callbacks=[online], verbose=0)
