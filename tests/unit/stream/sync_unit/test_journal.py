"""The journal has only what can be applied; what fails all the same costs a record, not the model.

A damaged base, a record of an older version and a journal that is cut: the weights are those of the
entries that are left.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

from tests.support.stream.model_folder import ModelFolder
from tests.support.stream.model_updates import (
    DELTAS,
    DENSE,
    FENCE,
    GRADIENTS,
    begun_model,
    lease_update,
)
from tests.support.stream.stream_file import write_stream
from tests.unit.checkpoint import conftest as checkpoints
from tfhybrid.cli.main import app
from tfhybrid.core.native import OptimizerKind
from tfhybrid.errors import (
    CheckpointError,
    ConfigError,
    CorruptFileError,
    LeaseRefusedError,
    PositionLostError,
    StreamError,
    TfhybridError,
)
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.queue import QueuePosition, Record
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.sync_unit import recovery
from tfhybrid.stream.sync_unit.lease_ledger import LeaseLedger
from tfhybrid.stream.weights import weight_base
from tfhybrid.stream.weights.lease import Lease
from tfhybrid.stream.weights.model_spec import DENSE_TABLE, ModelSpec, TableSpec


def _trained(
    folder: ModelFolder, numbers: range, saved_after: tuple[int, ...] = ()
) -> dict[str, int]:
    """Begins a model and applies updates, with bases behind some of them; returns its digests."""
    model = begun_model(folder.opened())
    for number in numbers:
        model.apply(lease_update(number))
        if number in saved_after:
            model.save()
    digests = model.digests()
    folder.close()
    return digests


REFUSED = {
    "no dim": {"item": TableSpec(0)},
    "a large dim": {"item": TableSpec(65537)},
    "a long name": {"i" * 300: TableSpec(3)},
    "a newer optimizer": {"item": TableSpec(3, optimizer={"kind": 99})},
    "a newer initializer": {"item": TableSpec(3, (99, 0.0, 0.0))},
}


@pytest.mark.parametrize("name", [*REFUSED])
def test_a_model_that_is_refused_leaves_nothing(folder: ModelFolder, name: str) -> None:
    model = folder.opened()
    with pytest.raises(ConfigError):
        model.open(ModelSpec({"user": TableSpec(4), **REFUSED[name]}), [])
    assert folder.records() == 0
    assert not model.is_open
    begun_model(model)  # the name is free
    model.apply(lease_update(0))
    digests = model.digests()
    assert folder.opened().digests() == digests
    assert folder.model.set_aside == {}


def test_weights_that_are_not_finite_do_not_begin_a_model(folder: ModelFolder) -> None:
    model = folder.opened()
    for value in (np.nan, np.inf, 1e39):
        dense = [each.astype(np.float64) for each in DENSE]
        dense[1][2] = value
        with pytest.raises(ConfigError, match="must be finite"), np.errstate(over="ignore"):
            model.open(DELTAS, dense)
    assert folder.records() == 0
    empty = [np.zeros((0,), np.float32), np.float32(2).reshape(()), np.zeros((3, 0), np.float32)]
    spec = ModelSpec(DELTAS.tables, [each.shape for each in empty])
    model.open(spec, empty)
    digests = model.digests()
    assert folder.opened().digests() == digests


BAD_FIELDS = {
    "rows": [-5, 2**63, "5", 1.0, None, True],
    "fence": [-1, 2**70, "1"],
    "version": [None, -1, 0.5],
    "trainer": [7, None],
    "event_time": [2**63, -(2**63), 0.5, "now"],
    "begin": [
        QueuePosition(-1, 0),
        QueuePosition(0, "0"),
        QueuePosition(1, 0),
        QueuePosition(2, 0),
    ],
    "end": [QueuePosition(0, 0), QueuePosition(2**63, 0), QueuePosition(None, 0)],
    "observed": [
        {"times": [[1, -2]]},
        {"times": 7},
        {"times": [["x", 1]]},
        {"times": [[2**80, 1]]},
        {"scores": [[1, 2]]},
        {"scores": [[1, 2, -3]]},
        [1],
    ],
    "rates": [
        {},
        7,
        {"item": "0.1"},
        {"item": float("nan")},
        {"item": 1e39},
        {"item": True},
        {"item": -0.1},
        {"item": 10**400},
    ],
}


@pytest.mark.parametrize("field", [*BAD_FIELDS])
def test_no_field_of_an_update_reaches_the_journal_unchecked(
    folder: ModelFolder, field: str
) -> None:
    model = begun_model(folder.opened(), GRADIENTS)
    before = folder.records()
    for value in BAD_FIELDS[field]:
        if isinstance(value, dict) and field == "rates" and value:
            value = {**lease_update(0, GRADIENTS).rates, **value}
        bad = lease_update(0, GRADIENTS, **{field: value})
        for send in (model.apply, lambda update: model.apply_record(update.to_record())):
            with pytest.raises((TfhybridError), match=r"Received|malformed"):
                send(bad)
    assert folder.records() == before
    assert model.apply(lease_update(0, GRADIENTS)) == (1, True)
    digests = model.digests()
    assert folder.opened().digests() == digests


def _changed_arrays() -> dict[str, tuple[dict, dict]]:
    update = lease_update(0, GRADIENTS)
    keys, values = update.keys["item"], update.values["item"]
    large = values.copy()
    large[1, 2] = 1e30
    return {
        "keys of floats": ({"item": keys + 0.5}, {}),
        "keys of 32 bits": ({"item": keys.astype(np.int32)}, {}),
        "unsigned keys": ({"item": keys.astype(np.uint64)}, {}),
        "a scalar": ({"item": np.int64(7)}, {"item": np.float32(7)}),
        "keys in a column": ({"item": keys[:, None]}, {}),
        "fewer keys": ({"item": keys[1:]}, {}),
        "no dim": ({}, {"item": values[:, :0]}),
        "flat values": ({}, {"item": values.ravel()}),
        "doubles": ({}, {"item": values.astype(np.float64)}),
        "another table": ({"news": keys}, {"news": values}),
        "keys alone": ({"news": keys}, {}),
        "NaN": ({}, {"item": np.where(large == 1e30, np.nan, values)}),
        "infinity": ({}, {"user": np.full_like(update.values["user"], -np.inf)}),
        "a step that overflows": ({}, {"item": large * np.float32(1e8)}),
    }


@pytest.mark.parametrize("name", [*_changed_arrays()])
def test_no_array_of_an_update_reaches_the_journal_unchecked(
    folder: ModelFolder, name: str
) -> None:
    model = begun_model(folder.opened(), GRADIENTS)
    before = folder.records()
    update = lease_update(0, GRADIENTS)
    keys, values = _changed_arrays()[name]
    bad = dataclasses.replace(
        update, keys={**update.keys, **keys}, values={**update.values, **values}
    )
    for send in (model.apply, lambda update: model.apply_record(update.to_record())):
        with pytest.raises(ConfigError, match="Received"):
            send(bad)
    assert folder.records() == before
    none = {name: (update.keys[name][:0], update.values[name][:0]) for name in update.keys}
    empty = lease_update(
        1,
        GRADIENTS,
        keys={name: each[0] for name, each in none.items()},
        values={name: each[1] for name, each in none.items()},
    )
    assert model.apply(empty) == (1, True)
    assert model.apply(update) == (2, True)
    digests = model.digests()
    assert folder.opened().digests() == digests


def _delta(number: int, value: float) -> dict:
    keys = {"item": np.arange(2), "user": np.arange(0), DENSE_TABLE: np.arange(0)}
    values = {
        name: np.full((len(keys[name]), table.dim), value, np.float32)
        for name, table in DELTAS.all_tables.items()
    }
    return {"number": number, "keys": keys, "values": values}


def test_rows_stay_finite_when_deltas_are_added(folder: ModelFolder) -> None:
    model = begun_model(folder.opened())
    largest = float(np.finfo(np.float32).max)
    assert model.apply(lease_update(**_delta(0, largest))) == (1, True)
    for value in (1e-30, 1e30):  # lost by rounding
        assert model.apply(lease_update(**_delta(round(np.log10(value)) + 40, value)))[1]
    for value in (largest, 1e32):
        with pytest.raises(ConfigError, match=r"with an update added must be finite.*key 0 of"):
            model.apply(lease_update(**_delta(1, value)))
    assert model.apply(lease_update(**_delta(1, -largest))) == (4, True)
    rows = model.read({"item": np.arange(2)})[0]["item"]
    assert np.isfinite(rows).all()
    digests = model.digests()
    assert folder.opened().digests() == digests


def test_updates_of_a_group_cannot_overflow_a_row_together(folder: ModelFolder) -> None:
    model = begun_model(folder.opened())
    updates = [lease_update(**_delta(number, 2e38)) for number in range(3)]
    outcomes = []
    with ThreadPoolExecutor(3) as threads:
        with model._lock:  # so that all three wait, and go to disk together
            sent = [threads.submit(model.apply, each) for each in updates]
            while len(model._updates._waiting) < 3:
                pass
        for each in sent:
            outcomes.append(each.exception())
    assert sorted(type(each).__name__ for each in outcomes) == ["ConfigError"] * 2 + ["NoneType"]
    assert np.isfinite(model.read({"item": np.arange(2)})[0]["item"]).all()
    assert folder.opened().version == 1


def test_a_range_is_skipped_only_if_it_can_be(folder: ModelFolder) -> None:
    model = begun_model(folder.opened())
    model.apply(lease_update(1))
    before = folder.records()
    for begin, end in (((0, 0), (1, 5)), ((1, 5), (3, 0)), ((4, 0), (4, 0)), ((5, 0), (4, 0))):
        lease = Lease(FENCE, "t", QueuePosition(*begin), QueuePosition(*end), 0)
        with pytest.raises(LeaseRefusedError, match="can only skip rows that it has not trained"):
            model.skip("video", lease)
    assert folder.records() == before
    assert folder.opened().version == 1


def _older_versions() -> list[Record]:
    """Records that no version of today writes."""
    good = lease_update(0).to_record()
    fields = json.loads(good.attributes["update"])
    return [
        Record(good.payload, {**good.attributes, "update": json.dumps({**fields, "rows": -5})}),
        good,  # a copy: its rows are in the weights
        Record(b"", {"kind": "passed", "range": json.dumps(["video", 0, 0, 1, 5])}),
        Record(b"", {"kind": "passed", "range": json.dumps(["audio", 0, 0, 1, 5])}),
        Record(b"", {"kind": "model", "spec": ModelSpec({"item": TableSpec(0)}).to_json()}),
        Record(b"", {"kind": "epoch", "epoch": "[]"}),
        Record(b"", {"kind": "later"}),
        Record(b"nonsense", {"kind": "update", "update": "{}"}),
        lease_update(7, queue="audio").to_record(),
        lease_update(7, keys={}, values={}).to_record(),
    ]


def test_a_record_that_cannot_be_applied_is_set_aside_by_name(
    folder: ModelFolder, caplog: pytest.LogCaptureFixture
) -> None:
    _trained(folder, range(1))
    refused = ModelSpec({"item": TableSpec(0)}).to_json()
    others = _older_versions()
    with closing(LogQueue(folder.folder / "journal", write=True)) as journal:
        first = journal.append(others) - len(others)
        journal.append([lease_update(1).to_record()])
    assert refused in others[4].attributes["spec"]
    for _ in range(2):
        with caplog.at_level(logging.ERROR):
            model = folder.opened()
        assert [*model.set_aside] == [*range(first, first + len(others))]
        assert f"RECORD {first} OF THE JOURNAL IS SET ASIDE" in caplog.text
        assert "update of trainer t" in caplog.text
        assert model.version == 2
    assert model.apply(lease_update(2)) == (3, True)
    digests = model.digests()
    model.save()
    model.save()
    assert folder.opened().digests() == digests
    assert folder.model.set_aside == {}
    folder.close()
    again = ModelFolder(folder.folder.parent / "again", folder.memory)
    assert _trained(again, range(3)) == digests


def test_a_journal_that_begins_with_a_refused_model_takes_the_next_one(folder: ModelFolder) -> None:
    bad = Record(b"", {"kind": "model", "spec": ModelSpec({"item": TableSpec(0)}).to_json()})
    with closing(LogQueue(folder.folder / "journal", write=True)) as journal:
        journal.append([bad])
    model = folder.opened()
    assert [*model.set_aside] == [0]
    begun_model(model).apply(lease_update(0))
    digests = model.digests()
    assert folder.opened().digests() == digests


@pytest.mark.parametrize("saved_after", [(1,), (1, 3), (0, 1, 4)], ids=str)
def test_a_damaged_base_is_replaced_by_the_one_before_it(
    folder: ModelFolder, saved_after: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    digests = _trained(folder, range(5), saved_after)
    names = [base.name for base in weight_base.newest_first(folder.folder)]
    assert len(names) == min(len(saved_after), 2)
    newest = folder.folder / names[0]
    files = sorted(newest.iterdir())
    for number, file in enumerate(files):
        content = file.read_bytes()
        byte = number * 7 % len(content)
        damage = content[:byte] + bytes([content[byte] ^ 4]) + content[byte + 1 :]
        if number == 0:
            file.unlink()
        else:
            file.write_bytes(damage)
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            assert folder.opened().digests() == digests
        assert "A BASE IS DAMAGED" in caplog.text
        assert f"damaged-{names[0]}" in caplog.text
        assert [base.name for base in weight_base.newest_first(folder.folder)] == names[1:]
        folder.close()
        newest.with_name(f"damaged-{names[0]}").rename(newest)
        file.write_bytes(content)
    file.write_bytes(damage)
    model = folder.opened()
    model.save()  # under a name that the damaged one may have had
    model.apply(lease_update(5))
    digests = model.digests()
    assert folder.opened().digests() == digests


def test_a_journal_is_cut_behind_a_base(folder: ModelFolder) -> None:
    digests = _trained(folder, range(6), saved_after=(1, 4))
    bases = weight_base.newest_first(folder.folder)
    end = folder.records()
    with pytest.raises(PositionLostError, match=f"there are whole records until {end}"):
        recovery.cut(folder.folder, end)
    folder.opened()
    code = "import sys; from pathlib import Path; from tfhybrid.stream.sync_unit import recovery; "
    code += f"recovery.cut(Path(sys.argv[1]), {end - 3})"
    command = [sys.executable, "-c", code, folder.folder]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "NameTakenError: Another process writes the queue" in run.stderr
    folder.close()
    assert folder.records() == end
    assert weight_base.newest_first(folder.folder) == bases
    removed = recovery.cut(folder.folder, end - 3)  # without updates 3, 4 and 5
    assert folder.records() == end - 3
    assert weight_base.newest_first(folder.folder) == bases[1:]
    with closing(LogQueue(removed)) as journal:
        assert journal.end() == end
    model = folder.opened()
    assert model.version == 3
    for number in range(3, 6):
        assert model.apply(lease_update(number)) == (number + 1, True)
    assert model.digests() == digests
    assert folder.opened().digests() == digests


def test_a_damaged_record_is_cut_out(folder: ModelFolder) -> None:
    _trained(folder, range(4))
    (file,) = (folder.folder / "journal").glob("*.log")
    content = file.read_bytes()
    place = content.index(lease_update(2).to_record().payload) + 40
    file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(CorruptFileError, match="where record 4 was expected"):
        folder.opened()
    lines = []
    with pytest.raises(CorruptFileError):
        lines.extend(recovery.checked_lines(folder.folder, LeaseLedger("ads")))
    with pytest.raises(PositionLostError, match="there are whole records until 4"):
        recovery.cut(folder.folder, 5)
    with pytest.raises(StreamError, match="can be cut only behind a base, or behind the record"):
        recovery.cut(folder.folder, 0)
    recovery.cut(folder.folder, 4)
    assert folder.opened().version == 2


def _journal(config: Path, *options: object) -> tuple[int, str]:
    command = ["stream", "journal", str(config), "ads", *map(str, options)]
    result = CliRunner().invoke(app, command)
    return result.exit_code, result.output


def test_the_command_shows_checks_and_cuts(folder: ModelFolder, tmp_path: Path) -> None:
    config = write_stream(tmp_path, tmp_path, {"item": "int64", "medium": "string"})
    folder.folder = Path(StreamSettings.read(config).folder) / "models" / "ads"
    _trained(folder, range(3), saved_after=(0,))
    assert _journal(config, "--check") == (0, "ads: all bases and 2 records are good\n")
    status, text = _journal(config, "--json", "--last", 2)
    assert status == 0
    lines = json.loads(text)["records"]
    assert [line["offset"] for line in lines] == [3, 4]
    assert "update of trainer t" in lines[1]["text"]
    with closing(LogQueue(folder.folder / "journal", write=True)) as journal:
        journal.append([Record(b"", {"kind": "later"})])
    status, text = _journal(config, "--check")
    assert status == 1
    assert "later" in text
    assert _journal(config, "--cut", 5)[0] == 0
    assert _journal(config, "--check")[0] == 0
    manifest = weight_base.newest_first(folder.folder)[0] / "base.json"
    manifest.write_bytes(manifest.read_bytes() + b" ")
    status, text = _journal(config, "--check")
    assert status == 1
    assert "is damaged" in text
    assert folder.opened().version == 3


def test_a_base_that_is_cut_off_is_kept(folder: ModelFolder) -> None:
    _trained(folder, range(3), saved_after=(0, 2))
    recovery.cut(folder.folder, 3)
    names = sorted(path.name for path in folder.folder.iterdir())
    assert names.count("journal") == 1
    assert sum(name.startswith("cut-base-") for name in names) == 1
    kept = next(folder.folder.glob("cut-base-*"))
    assert weight_base.read(kept)[0].version == 3
    assert safetensors.numpy.load_file(next(kept.glob("item-*.safetensors")))["keys"].size


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["embeddings", "states"])
def test_a_checkpoint_that_is_not_finite_does_not_begin_a_model(
    folder: ModelFolder, tmp_path: Path, part: str, value: float
) -> None:
    blocks = [checkpoints.rows(0, 4), checkpoints.rows(4, 3)]
    getattr(blocks[1], part)[2, 1] = value
    checkpoints.write_checkpoint(tmp_path, 7, blocks)
    optimizer = {"kind": OptimizerKind.ADAM, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}
    table = TableSpec(checkpoints.DIM, (2, -0.05, 0.05), optimizer, slots=checkpoints.SLOTS)
    model = folder.opened()
    with pytest.raises(CheckpointError, match=r"must be finite.* key 4 of table 'item'"):
        model.open(ModelSpec({"item": table}, seed=5), [], (str(tmp_path), 7))
    assert not model.is_open
