"""Publications with right checksums that cannot be served change nothing, and stop no reader."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tests.support.serving.publishing import KEYS, Site
from tests.support.stream.model_updates import DELTAS
from tfhybrid.core import native
from tfhybrid.errors import CheckpointError, ConfigError, CorruptFileError
from tfhybrid.serving import Reader
from tfhybrid.stream.weights import publication as files
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec
from tfhybrid.stream.weights.publication import Publication


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path) -> Iterator[Site]:
    site = Site(tmp_path, shm_directory)
    site.train(0)
    site.publish()
    yield site
    site.unit.close()


Arrays = dict[str, np.ndarray]


def _with_arrays(change: Callable[[Arrays], Arrays | bytes]) -> Callable[[Path, Publication], dict]:
    """Changes the file of the table "user", which comes behind "item"."""

    def changed(folder: Path, publication: Publication) -> dict:
        listed = []
        for file in publication.files:
            if (file.table, file.kind) == ("user", "rows"):
                path = folder / file.name
                arrays = {name: each.copy() for name, each in files.read_file(folder, file).items()}
                content = change(arrays)
                if isinstance(content, dict):
                    content = safetensors.numpy.save(content)
                path.write_bytes(content)
                file = file._replace(crc=native.crc32c(content))
            listed.append(file)
        return {"files": listed}

    return changed


def _with_file(**changes: object) -> Callable[[Path, Publication], dict]:
    def changed(folder: Path, publication: Publication) -> dict:
        first, *others = publication.files
        return {"files": [*others, first._replace(**changes)]}

    return changed


def _link(folder: Path, publication: Publication) -> dict:
    path = folder / publication.files[-1].name
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")
    return {}


def _text(content: bytes) -> Callable[[Path, Publication], dict]:
    def changed(folder: Path, publication: Publication) -> dict:
        (folder / files.MANIFEST).write_bytes(b"%08x\n" % native.crc32c(content) + content)
        return {"crc": native.crc32c(content)}

    return changed


def _nan(arrays: Arrays) -> Arrays:
    arrays["embeddings"][1, 2] = np.nan
    return arrays


OTHER = ModelSpec({**DELTAS.tables, "item": TableSpec(4)}, DELTAS.dense, seed=3).to_json()
CRAFTED = {
    "another dim": _with_arrays(lambda of: {**of, "embeddings": of["embeddings"][:, :5].copy()}),
    "no embeddings": _with_arrays(lambda of: {"keys": of["keys"]}),
    "no keys": _with_arrays(lambda of: {"embeddings": of["embeddings"]}),
    "fewer embeddings": _with_arrays(lambda of: {**of, "embeddings": of["embeddings"][1:].copy()}),
    "fewer rows": _with_arrays(lambda of: {name: each[1:].copy() for name, each in of.items()}),
    "keys of floats": _with_arrays(lambda of: {**of, "keys": of["keys"].astype(np.float64)}),
    "keys of 32 bits": _with_arrays(lambda of: {**of, "keys": of["keys"].astype(np.int32)}),
    "a key": _with_arrays(lambda of: {**of, "keys": np.array(of["keys"][0])}),
    "doubles": _with_arrays(lambda of: {**of, "embeddings": of["embeddings"].astype(np.float64)}),
    "NaN": _with_arrays(_nan),
    "no arrays": _with_arrays(lambda of: b"nonsense"),
    "another table": _with_file(table="news"),
    "another kind": _with_file(kind="later"),
    "a path": _with_file(name="../0000000001/publication.json"),
    "an absolute path": _with_file(name="/etc/hostname"),
    "no name": _with_file(name=""),
    "a number as name": _with_file(name=7),
    "a link": _link,
    "another model": lambda *_: {"spec": OTHER},
    "a model that is no JSON": lambda *_: {"spec": "{"},
    "a deep model": lambda *_: {"spec": "[" * 100_000},
    "a model that is a number": lambda *_: {"spec": 7},
    "rows below zero": lambda *_: {"rows": -1},
    "more rows": lambda _, publication: {"rows": publication.rows + 1},
    "removed keys": lambda *_: {"removed": 3},
    "rows of floats": lambda _, publication: {"rows": float(publication.rows)},
    "another number": lambda *_: {"number": 3},
    "no JSON": _text(b"{"),
    "deep JSON": _text(b"[" * 100_000),
    "a list": _text(b"[1, 2]"),
    "a number": _text(b"7"),
    "empty fields": _text(b"{}"),
    "text as times": _text(json.dumps({"chain": [], "files": [], "times": "x"}).encode()),
}
ERRORS = (CorruptFileError, CheckpointError, ConfigError)


@pytest.mark.parametrize("name", [*CRAFTED])
def test_a_publication_is_checked_before_its_first_row_is_served(site: Site, name: str) -> None:
    reader = site.reader()
    reader.refresh()
    served = reader.read(dict.fromkeys(DELTAS.tables, KEYS), dense=True)
    site.train(1)
    publication = site.publish()
    assert not publication.is_base
    folder = files.folder_of(site.publications, 2)
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept)
    pointer = files.current(site.publications)
    changes = CRAFTED[name](folder, publication)
    crc = changes.pop("crc", None)
    if crc is None:
        crafted = dataclasses.replace(publication, **changes)
        crc = files.write_manifest(folder, crafted).crc
    files.point_to(site.publications, pointer._replace(crc=crc))
    late = site.reader()
    for each in (reader, late):
        with pytest.raises(ERRORS):
            each.refresh()
        assert each.failures == 1
    assert late.publication is None
    assert reader.publication.number == 1
    after = reader.read(dict.fromkeys(DELTAS.tables, KEYS), dense=True)
    for table, rows in served.rows.items():
        np.testing.assert_array_equal(after.rows[table], rows)
    for mine, before in zip(after.dense, served.dense, strict=True):
        np.testing.assert_array_equal(mine, before)
    shutil.rmtree(folder)
    kept.rename(folder)
    files.point_to(site.publications, pointer)
    for each in (reader, late):
        assert each.refresh()
        site.assert_served(each)
        each.close()


@pytest.mark.parametrize("content", [b"[1.5, 2, 3]", b"7", b'{"a": 1}', b"[" * 100_000, b"["])
def test_a_pointer_that_points_nowhere_is_named(site: Site, content: bytes) -> None:
    current = site.publications / files.CURRENT
    current.write_bytes(b"%08x\n" % native.crc32c(content) + content)
    reader = site.reader()
    with pytest.raises(CorruptFileError, match=r"current\.json"):
        reader.refresh()
    reader.close()


def _until(reader: Reader, number: int) -> None:
    end = time.monotonic() + 30
    while reader.publication is None or reader.publication.number != number:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_reader_that_follows_survives_any_error(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader = site.reader()
    whole = files.wanted
    failing = [True]

    def wanted(folder: Path) -> object:
        if failing[0]:
            raise KeyError("what nobody has thought of")
        return whole(folder)

    monkeypatch.setattr(files, "wanted", wanted)
    reader.follow(0.01)
    end = time.monotonic() + 30
    while reader.failures < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert caplog.text.count("KeyError: 'what nobody has thought of'") == 1
    failing[0] = False
    _until(reader, 1)
    site.assert_served(reader)
    reader.close()


@pytest.mark.parametrize("lost", ["base", "delta", "all", "a manifest"])
def test_a_chain_that_is_gone_ends_and_a_new_one_begins(
    site: Site, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.train(1)
    site.publish()
    site.train(2)
    site.publish()
    if lost == "all":
        shutil.rmtree(site.publications)
    elif lost == "a manifest":
        (files.folder_of(site.publications, 2) / files.MANIFEST).unlink()
    else:
        shutil.rmtree(files.folder_of(site.publications, 1 if lost == "base" else 2))
    site.train(3)
    publication = site.publish()
    assert publication.is_base
    assert publication.number == 4
    assert "the chain of publications is broken, and a new one begins" in caplog.text
    reader = site.reader()
    reader.refresh()
    site.assert_served(reader)
    site.train(4)
    assert not site.publish().is_base
    reader.refresh()
    site.assert_served(reader)
    reader.close()
