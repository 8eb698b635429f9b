"""A Keras model trained online predicts the same in the trainer, in a reader and in stock form."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tfhybrid
from tests.support.serving.publishing import Site as PublishedSite
from tests.support.stream.online_site import TABLES, Site, small_model
from tfhybrid.errors import ConfigError, ExportError, PublicationError
from tfhybrid.serving import Reader, ServedModel, StockExport


def _inputs(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 4, 20)
    return {
        "item": random.integers(0, 80, 20),
        "history": random.integers(0, 60, lengths.sum()),
        "history_row_splits": np.concatenate([[0], np.cumsum(lengths)]),
    }


def _predicted(model, inputs: dict[str, np.ndarray]) -> np.ndarray:
    ragged = tf.RaggedTensor.from_row_splits(inputs["history"], inputs["history_row_splits"])
    keys = {"item": tf.constant(inputs["item"]), "history": ragged}
    return model(keys, training=False).numpy()


def test_the_trainer_a_reader_and_stock_tensorflow_agree(site: Site, tmp_path: Path):
    graph, publications = tmp_path / "graph", tmp_path / "publications"
    reader = Reader(publications, memory=site.settings.memory)
    model = small_model()
    tfhybrid.export.serving_graph(model, graph)
    served = ServedModel(graph, reader)
    with pytest.raises(ConfigError, match="Inputs are"):
        served.predict({"price": [1]})
    with pytest.raises(PublicationError, match=r"No publication of .* has been read yet"):
        served.predict(_inputs(0))
    export = StockExport(
        Reader(publications, memory=site.settings.memory), graph, tmp_path / "stock"
    )
    assert export.export() is None
    for round_ in range(2):
        site.put(200, seed=round_)
        _fit(site, model)
        site.unit.publishers["ads"].publish()
        reader.refresh()
        inputs = _inputs(round_)
        wanted = _predicted(model, inputs)
        # The trainer has the sums of its steps, the sync unit the sums of differences.
        np.testing.assert_allclose(served.predict(inputs)["output_0"], wanted, rtol=1e-4, atol=1e-5)
        folder = export.export()
        assert folder is not None
        assert folder.name == str(round_ + 1)
        assert export.export() is None
        _assert_stock(folder, inputs, served.predict(inputs)["output_0"])
    with pytest.raises(ExportError, match="There is no serving graph"):
        ServedModel(tmp_path / "nowhere", reader)
    reader.close()


def test_a_publication_in_a_remote_store(tmp_path: Path, shm_directory: Path):
    """One: `ram://` appends to a file where real stores replace it (tests/soak/test_s3.py)."""
    site = PublishedSite(tmp_path, shm_directory, publications=f"ram://{uuid.uuid4().hex}/ads")
    reader = site.reader()
    assert not reader.refresh()
    site.publish()
    assert reader.refresh()
    site.assert_served(reader)
    reader.close()
    site.unit.close()


def _fit(site: Site, model) -> None:
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=16, wait=False)
    data = tfhybrid.stream.dataset(leases, features=["item", "history"], label="label")
    model.fit(data, callbacks=[tfhybrid.stream.Online(leases, tables=TABLES)], verbose=0)


def _assert_stock(folder: Path, inputs, wanted: np.ndarray) -> None:
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    found = signature(**{name: tf.constant(value) for name, value in inputs.items()})
    np.testing.assert_allclose(found["output_0"], wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("modules", "found"),
    [("read_only_node, tfhybrid.serving.reader", []), ("served_model", ["tensorflow"])],
)
def test_what_serves_needs_no_horovod_and_readers_no_tensorflow(modules: str, found: list[str]):
    look = f"""
import sys
import tfhybrid.serving.{modules}
print(sorted({{"tensorflow", "horovod"}} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert run.stdout == f"{found}\n"
