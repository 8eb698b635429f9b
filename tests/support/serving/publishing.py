"""A sync unit that publishes, in process, and what readers must see of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import yaml

from tests.support.free_ports import two_free_ports
from tests.support.reference.asynchronous import Replay
from tests.support.stream.model_updates import DELTAS, DENSE, begun_model, lease_update
from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.storage import Location
from tfhybrid.serving import Reader
from tfhybrid.stream.sync_unit.publisher import Publisher, PublishRules
from tfhybrid.stream.sync_unit.sync_unit import SyncUnit
from tfhybrid.stream.weights.model_spec import (
    DENSE_TABLE,
    ModelSpec,
    dense_keys,
    dense_weights,
)
from tfhybrid.stream.weights.weight_update import WeightUpdate

KEYS = np.arange(-60, 60)


def wide_update(spec: ModelSpec) -> WeightUpdate:
    """An update of many rows: beside them, those of the others are few."""
    update = lease_update(1000, spec)
    keys, values = dict(update.keys), dict(update.values)
    for name, table in spec.tables.items():
        keys[name] = np.arange(100, 2100)
        values[name] = np.ones((2000, table.dim), np.float32)
    return dataclasses.replace(update, keys=keys, values=values)


class Site:
    """A sync unit of the model "ads", which may be killed and started again."""

    def __init__(self, folder: Path, memory: Path, *, spec: ModelSpec = DELTAS, **rules) -> None:
        self.folder, self._memory, self._spec = folder, memory, spec
        self.publications = storage.location(rules.pop("publications", folder / "publications"))
        self._rules = PublishRules(str(self.publications), **{"seconds": 1e6, **rules})
        self.replay = Replay(spec, DENSE)
        self.start()
        begun_model(self.model, spec)
        self.apply(wide_update(spec))

    @property
    def model(self):
        return self.unit.models["ads"]

    @property
    def publisher(self) -> Publisher:
        return self.unit.publishers["ads"]

    def start(self, publications: Location | None = None) -> None:
        """Starts the process, on publications in another folder if one is given."""
        if publications is not None:
            self.publications = publications
            self._rules = PublishRules(str(publications), seconds=1e6)
        self.unit = SyncUnit(
            ["ads"], self.folder / "models", self._memory, publish={"ads": self._rules}
        )

    def kill(self) -> None:
        """Ends the process as kill -9 does: nothing is published or saved."""
        for publisher in self.unit.publishers.values():
            publisher.publish = lambda: None  # type: ignore[method-assign]
        self.unit.close()

    def train(self, *numbers: int, **changes) -> None:
        for number in numbers:
            self.apply(lease_update(number, self._spec, **changes))

    def apply(self, update: WeightUpdate) -> None:
        self.model.apply(update)
        self.replay.apply(update)

    def publish(self):
        return self.publisher.publish()

    def reader(self) -> Reader:
        return Reader(self.publications, name="ads", memory=self._memory)

    def assert_served(self, reader: Reader) -> None:
        """A reader has what NumPy has, bit for bit."""
        found = reader.read(dict.fromkeys(self._spec.tables, KEYS), dense=True)
        for name in self._spec.tables:
            np.testing.assert_array_equal(
                found.rows[name], self.replay.lookup(name, KEYS), err_msg=name
            )
        for mine, its in zip(found.dense, self.dense(), strict=True):
            np.testing.assert_array_equal(mine, its)

    def dense(self) -> list[np.ndarray]:
        rows = self.replay.lookup(DENSE_TABLE, dense_keys(self._spec.dense))
        return dense_weights(rows, self._spec.dense)


def settings_of(folder: Path, publications: Path, **changes) -> Path:
    """Writes a `stream.yaml` that publishes the model "ads"; returns its path."""
    port = two_free_ports()
    (folder / "token").write_text("a secret of the test")
    settings = {
        "folder": str(folder / "stream"),
        "provider": f"127.0.0.1:{port}",
        "sync": f"127.0.0.1:{port + 1}",
        "token_file": str(folder / "token"),
        "columns": {"item": "int64", "time": "int64", "medium": "string"},
        "routes": {
            "columns": ["medium"],
            "queues": {"video": "video"},
            "models": {"ads": ["video"]},
        },
        "event_time": "time",
        "publish": {"ads": {"folder": str(publications)}},
        **changes,
    }
    path = folder / "stream.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path
