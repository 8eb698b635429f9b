"""`tfhybrid train`, beside the same training in Python."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from tensorflow import keras
from typer.testing import CliRunner, Result

import tfhybrid
from tfhybrid.checkpoint.dense import tables_of, variables_of
from tfhybrid.cli.main import app
from tfhybrid.cli.train.settings_file import SettingsFile
from tfhybrid.cli.train.table_section import (
    INITIALIZER_OPTIONS,
    OPTIMIZER_OPTIONS,
    InitializerSettings,
    TableOptimizer,
)
from tfhybrid.cli.train.train_settings import MODEL_OPTIONS, Model
from tfhybrid.cli.train.training import Training
from tfhybrid.data import Column, Csv, FileBatches, Parquet, TFRecord
from tfhybrid.errors import ConfigError

SAMPLES = 512
FEATURES = ["user", "item"]


def run(*arguments: Any, status: int = 0) -> Result:
    result = CliRunner().invoke(app, ["train", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Of a small job, with its data; not written yet."""
    rng = np.random.default_rng(1)
    for day in range(2):
        table = {
            **{"user": rng.integers(0, 50, SAMPLES), "item": rng.integers(0, 9, SAMPLES)},
            **{"price": rng.random(SAMPLES), "label": rng.integers(0, 2, SAMPLES)},
            "seen": [rng.integers(0, 9, rng.integers(0, 4)) for _ in range(SAMPLES)],
            "pair": pa.array([[1, 2]] * SAMPLES, pa.list_(pa.int64(), 2)),
        }
        pa.parquet.write_table(pa.table(table), tmp_path / f"day_{day}.parquet")
    return {
        "data": {
            **{"train": str(tmp_path / "day_0.parquet"), "batch_size": 64},
            "features": FEATURES,
        },
        "model": {"name": "deepfm", "hidden": [8]},
        "table": {"dim": 4, "optimizer": {"name": "adagrad", "learning_rate": 0.1}},
        "tables": {"user": {"expected_rows": 1000, "optimizer": {"name": "adam"}}},
        "optimizer": {"name": "adam", "learning_rate": 0.01},
        "epochs": 2,
        "evaluation": {"files": str(tmp_path / "day_1.parquet"), "group": "user"},
        "job": {"seed": 3},
    }


@pytest.fixture
def write(tmp_path: Path):
    def write(settings: dict[str, Any] | str) -> Path:
        path = tmp_path / "model.yaml"
        text = settings if isinstance(settings, str) else yaml.safe_dump(settings)
        path.write_text(text)
        return path

    return write


def in_python(settings: dict[str, Any]) -> keras.Model:
    """The same training as a script."""
    keras.utils.set_random_seed(3)
    batches = FileBatches(Parquet(FEATURES), settings["data"]["train"], 64, seed=3)
    adagrad = tfhybrid.optimizers.Adagrad(0.1)
    tables = {
        "user": tfhybrid.TableConfig(4, optimizer=tfhybrid.optimizers.Adam(), expected_rows=1000),
        "item": tfhybrid.TableConfig(4, optimizer=adagrad),
    }
    model = tfhybrid.models.deepfm(FEATURES, table=tables, hidden=(8,))
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    options = {"epochs": 2, "steps_per_epoch": batches.steps_per_epoch, "shuffle": False}
    model.fit(batches.dataset(epochs=None), verbose=0, **options)
    return model


def state_of(model: keras.Model) -> list[np.ndarray]:
    """All that is dense, and the rows of tables by key."""
    found = [np.asarray(variable) for variable in variables_of(model)]
    for _, table in sorted(tables_of(model).items()):
        for block in table.blocks():
            order = np.argsort(block.keys)
            found += [block.keys[order], block.embeddings[order]]
    return found


def test_it_trains_what_a_script_trains(settings, write) -> None:
    training = Training(SettingsFile(write(settings)))
    found = training.run()
    trained = state_of(training.model)
    scores = tfhybrid.metrics.evaluate(
        training.model,
        FileBatches(
            Parquet(FEATURES), settings["evaluation"]["files"], 99, seed=0, shuffle=False
        ).dataset(),
        group="user",
    )
    tfhybrid.shutdown()
    tfhybrid.init(seed=3)
    expected = state_of(in_python(settings))
    for ours, wanted in zip(trained, expected, strict=True):
        np.testing.assert_array_equal(ours, wanted)
    assert found["step"] == 2 * SAMPLES // 64
    assert found["scores"] == pytest.approx(scores)


def test_it_resumes_keeps_the_best_and_exports(settings, write, tmp_path) -> None:
    settings["checkpoints"] = {"directory": str(tmp_path / "saved"), "max_to_keep": 1}
    settings["export"] = {"directory": str(tmp_path / "exported")}
    told = run(write(settings)).stdout
    tfhybrid.shutdown()
    assert re.search(r"step \d+, auc 0\.\d+", told)
    assert f"exported {tmp_path / 'exported' / '1'}" in told
    settings["epochs"] = 3
    run(write(settings))
    tfhybrid.shutdown()
    steps = tfhybrid.checkpoint.CheckpointManager(None, tmp_path / "saved").steps()
    assert max(steps) == 3 * SAMPLES // 64  # not 5: two epochs were there
    assert (tmp_path / "exported" / "2" / "saved_model.pb").exists()


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("din", {"lists": None}, {"behaviours": {"seen": "item"}, "hidden": [4], "attention": [3]}),
        ("dlrm", {"dense": ["price"]}, {"hidden": [4], "bottom": [4]}),
        ("lr", {}, {}),
        ("xdeepfm", {}, {"interactions": [3], "hidden": [4]}),
    ],
)
def test_models_read_lists_and_dense_columns(settings, write, name, data, options) -> None:
    if "lists" in data:  # a format in which lists are named like other columns
        settings["data"]["features"] = [*FEATURES, "seen"]
    else:
        settings["data"] |= data
    settings |= {"model": {"name": name, **options}, "epochs": 1}
    del settings["tables"]
    assert Training(SettingsFile(write(settings))).run()["step"] == SAMPLES // 64


GOOD = """\
data:
  train: days/*.parquet
  batch_size: 64
  features: [user, item]
model:
  name: deepfm
  hidden: [8, 4]
table:
  optimizer:
    name: adam
optimizer: {learning_rate: 1e-3}
"""


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        ("batch_size: 64", "batch_size: 0", [":3: data.batch_size: input should be greater"]),
        ("hidden: [8, 4]", "hiden: [8, 4]", [":7: model.hiden: there is no such setting"]),
        ("[8, 4]", "[8, four]", [":7: model.hidden.1: input should be a valid integer"]),
        ("  train: days/*.parquet\n", "", [":1: data.train: this setting is missing"]),
        ("deepfm", "deepfn", [":6: model.name: input should be 'lr', 'fm'", "'deepfn'"]),
        ("name: deepfm", "name: lr", [":5: model: the model lr takes [], not ['hidden']"]),
        ("name: adam", "name: adam\n    rho: 0.9", [":9: table.optimizer: the optimizer adam"]),
        ("1e-3", "fast", [":11: optimizer.learning_rate: input should be a valid number"]),
        ("  name: deepfm", "   name: deepfm", [":7: "]),
        ("  name: deepfm", "  name: deepfm\n  name: fm", [':7: found duplicate key "name"']),
        ("64", "0\n  window: 0", [":3: data.batch_size", ":4: data.window"]),
        ("table:", "job: {resume: memory}\ntable:", ["resume: memory needs a name"]),
        (
            "64",
            "64\n  strings: [city]",
            [":1: data: Files of parquet have no such option, because they tell the types"],
        ),
        (
            "table:",
            "evaluation: {files: a, monitor: val_acu}\ntable:",
            [":8: evaluation.monitor: input should be 'val_auc'", "Received: 'val_acu'"],
        ),
        (
            "table:",
            "evaluation: {files: a, monitor: val_gauc}\ntable:",
            [":8: evaluation: monitor: val_gauc needs a group"],
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(write, old, new, messages) -> None:
    path = write(GOOD.replace(old, new, 1))
    told = " ".join(run(path, "--check", status=1).output.split())
    for message in messages:
        assert f"{path.name}{message}" in told or message in told


def test_a_check_trains_evaluates_and_exports_a_batch_and_keeps_nothing(
    settings, write, tmp_path
) -> None:
    settings["checkpoints"] = {"directory": str(tmp_path / "saved")}
    settings["export"] = {"directory": str(tmp_path / "exported")}
    settings["job"] |= {"name": "clicks", "resume": "memory", "tensorboard": str(tmp_path / "logs")}
    path = write(settings)
    before = {each.name for each in tmp_path.iterdir()}
    assert "model.yaml: good" in run(path, "--check").stdout.replace("\n", "")
    assert {each.name for each in tmp_path.iterdir()} == before


def test_a_check_skips_bad_rows_and_writes_none(settings, write, tmp_path) -> None:
    table = pa.parquet.read_table(tmp_path / "day_0.parquet")
    labels = pa.array([7, *table["label"].to_pylist()[1:]])
    table = table.set_column(table.column_names.index("label"), "label", labels)
    pa.parquet.write_table(table, tmp_path / "day_0.parquet")
    settings["data"] |= {"bad_rows": "skip", "bad_rows_file": str(tmp_path / "bad.jsonl")}
    run(write(settings), "--check")
    assert not (tmp_path / "bad.jsonl").exists()


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("data", {"train": "nowhere/*.parquet"}, "data: Expected files at"),
        ("data", {"label": "price"}, "price"),
        ("data", {"features": [*FEATURES, "label"]}, "data.label: a column has one role"),
        ("data", {"dense": ["label"]}, "data.label: a column has one role"),
        ("data", {"format": "libfm", "features": ["label"]}, "data.label: a column has one role"),
        ("data", {"features": [*FEATURES, "user"]}, "data.features: names columns twice: ['user']"),
        ("data", {"dense": ["user"]}, "data.dense: a column has one role, and ['user'] are in"),
        ("data", {"dense": ["seen"]}, "column 'seen'"),
        ("model", {"name": "din", "behaviours": {"user": "item"}}, "must be columns of lists, of"),
        ("table", {"combiner": "sum"}, "table.combiner: is for lists that are features, which are"),
        ("tables", {"user": {"keep": "last"}}, "tables.user.keep: is for lists that are features"),
        ("job", {"metrics_port": 0, "metrics_host": "198.51.100.1"}, "job: "),
        ("evaluation", {"group": "hour"}, "evaluation.group: must be one of the features"),
        ("evaluation", {"files": "nowhere.parquet"}, "evaluation: Expected files at"),
        ("optimizer", {"name": "nadam"}, "counterpart"),
        ("export", {"directory": "gs://bucket/m"}, "export.directory: must be a local or mounted"),
        ("export", {"directory": "model.yaml/m"}, "export.directory: must be a folder"),
        ("checkpoints", {"directory": "model.yaml"}, "checkpoints.directory: must be a folder"),
    ],
    ids=str,
)
def test_a_check_finds_what_training_would(
    settings, write, tmp_path, monkeypatch, section, changes, message
) -> None:
    monkeypatch.chdir(tmp_path)
    settings.setdefault(section, {}).update(changes)
    if section == "optimizer":
        del settings["table"]["optimizer"]
    output = run(write(settings), "--check", status=1).output
    assert message in " ".join(output.split())


def test_a_check_reads_the_checkpoint_from_which_the_job_would_go_on(
    settings, write, tmp_path
) -> None:
    settings["checkpoints"] = {"directory": str(tmp_path / "saved")}
    settings["epochs"] = 1
    run(write(settings))
    tfhybrid.shutdown()
    run(write(settings), "--check")
    tfhybrid.shutdown()
    settings["table"]["dim"] = 5
    output = run(write(settings), "--check", status=1).output
    assert "has dim and initializer" in " ".join(output.split())


def test_strings_and_keys_are_different_columns_of_csv(write, tmp_path) -> None:
    text = GOOD.replace("batch_size: 64", "batch_size: 64\n  format: csv\n  strings: [item]")
    output = run(write(text), "--check", status=1).output
    assert ":5: data.strings: a column has one role, and ['item'] are in features too" in output


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("data", {"features": [*FEATURES, "price"]}, "column 'price'"),
        (
            "tables",
            {"itm": {}},
            "tables.itm: must be one of the features ['user', 'item']. Received: 'itm'",
        ),
        ("data", {"delimiter": ";"}, "data: Files of parquet have no such option"),
        ("optimizer", {"name": "adamm"}, "optimizer: adamm with"),
        (
            "table",
            {"lazy": False, "admission": {"updates": 2}},
            "tables.user: lazy=False cannot be combined",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_line(
    settings, write, section, changes, message
) -> None:
    settings[section] |= changes
    told = run(write(settings), status=1).output
    assert message in " ".join(told.split())


@pytest.mark.parametrize(
    ("initializer", "received"),
    [
        ("normal", tfhybrid.initializers.Normal()),
        ({"name": "normal", "stddev": 0.001}, tfhybrid.initializers.Normal(0.0, 0.001)),
        ({"name": "uniform", "minval": -1}, tfhybrid.initializers.Uniform(-1.0, 0.05)),
        ({"name": "constant", "value": 2}, tfhybrid.initializers.Constant(2.0)),
        (
            {"name": "variance_scaling", "scale": 2.0, "distribution": "untruncated_normal"},
            tfhybrid.initializers.Normal(0.0, 0.5**0.5),
        ),
    ],
)
def test_initializers_by_name_and_with_parameters(settings, write, initializer, received) -> None:
    settings["table"]["initializer"] = initializer
    training = Training(SettingsFile(write(settings)))
    (layer,) = (each for each in training.model.layers if hasattr(each, "tables"))
    assert {table.config.initializer for table in layer.tables.values()} == {received}


DATA = """\
data:
  train: rows.tfrecord
  format: {format}
  batch_size: 4
  features: [user, {{name: at, role: time, missing: 0}}]
  lists: {lists}
model: {{name: lr}}
"""


def test_columns_of_every_type_in_yaml(write) -> None:
    text = DATA.format(format="tfrecord", lists="[{name: genres, role: string}]")
    at, genres = Column("at", "time", missing=0), Column("genres", "string")
    assert SettingsFile(write(text)).sample_format() == TFRecord(["user", at], lists=[genres])
    text = DATA.format(
        format="csv", lists="[tags, {name: pair, length: 2}, {name: ids, length: any}]"
    )
    text = text.replace("  lists", "  strings: [tags]\n  lists")
    lists = ["tags", Column("pair", length=2), Column("ids", length=None)]
    assert SettingsFile(write(text)).sample_format() == Csv(
        ["user", at], strings=["tags"], lists=lists
    )


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ("[1]", "model.yaml:6: data.lists.0: input should be a valid string"),
        ("[{role: string}]", "model.yaml:6: data.lists.0.name: this setting is missing"),
        ("[{name: x, rolle: string}]", "data.lists.0.rolle: there is no such setting"),
        ("[{name: x, low: 9, high: 2}]", "model.yaml:6: data.lists: a Column's low must not be"),
        ("[{name: user}]", "data.lists: a column has one role, and ['user'] are in features"),
        ("[{name: x, role: number}]", "Column 'x' must have a role of"),
    ],
)
def test_columns_that_make_no_sense_are_named_with_their_line(write, lists, message) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        SettingsFile(write(DATA.format(format="tfrecord", lists=lists))).sample_format()


def test_the_settings_of_models_and_optimizers_are_theirs() -> None:
    for name, options in MODEL_OPTIONS.items():
        parameters = inspect.signature(getattr(tfhybrid.models, name)).parameters
        assert options == parameters.keys() - {"features", "table", "name", "dense"}
        assert options <= Model.model_fields.keys()
    for name, options in INITIALIZER_OPTIONS.items():
        kind = getattr(tfhybrid.initializers, name.title().replace("_", ""))
        fields = inspect.signature(kind).parameters
        assert options == fields.keys() - {"dim"}
        for option in options:
            assert InitializerSettings.model_fields[option].default == fields[option].default
    for name, options in OPTIMIZER_OPTIONS.items():
        kind = {
            each.__name__.lower(): each
            for each in vars(tfhybrid.optimizers).values()
            if inspect.isclass(each)
        }[name.replace("_", "")]
        fields = inspect.signature(kind).parameters
        assert options == fields.keys() - {"learning_rate", "weight_decay"}
        for option in options:
            default = fields[option].default
            assert TableOptimizer.model_fields[option].default == default, (name, option)
