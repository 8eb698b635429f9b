"""docs/train.md: every setting, and an example that is one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from typer.testing import CliRunner

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tests.unit.documentation import settings_page
from tfhybrid.cli.main import app


@pytest.fixture
def example() -> str:
    return re.search(r"```yaml\n(.*?)```", settings_page.PAGE.read_text(), re.DOTALL)[1]


def test_every_setting_is_on_the_page() -> None:
    """python -m tests.unit.documentation.settings_page writes it."""
    assert settings_page.tables() in settings_page.PAGE.read_text()


def test_the_schema_knows_the_example(example: str) -> None:
    schema = json.loads(CliRunner().invoke(app, ["train", "--schema"]).stdout)
    found = yaml.safe_load(example.replace("1e-3", "0.001"))
    jsonschema.validate(found, schema)
    found["model"]["hiden"] = [1]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, schema)


def test_the_example_is_good(example: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(example)
    Path("days").mkdir()
    days = pa.table({"user": [1, 2] * 4096, "item": [3, 4] * 4096, "click": [0, 1] * 4096})
    for day in range(1, 8):
        pa.parquet.write_table(days, f"days/day_{day:02}.parquet")
    checked = CliRunner().invoke(app, ["train", "model.yaml", "--check"])
    tfhybrid.shutdown()
    assert checked.exit_code == 0, checked.output
    assert {path.name for path in tmp_path.iterdir()} == {"days", "model.yaml"}


def test_the_example_of_lists_is_good(tmp_path: Path, monkeypatch) -> None:
    _, _, lists, calibration = re.findall(
        r"```yaml\n(.*?)```", settings_page.PAGE.read_text(), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(lists + calibration)
    Path("days").mkdir()
    rows = "user,item,bought,genres,label\n" + "1,2,3|4,new|old,1\n2,1,,,0\n" * 4096
    Path("days/day_06.csv").write_text(rows)
    Path("days/day_07.parquet").write_text(rows)  # named like the file of the other example
    checked = CliRunner().invoke(app, ["train", "model.yaml", "--check"])
    tfhybrid.shutdown()
    assert checked.exit_code == 0, checked.output


@needs_keras_3
def test_the_example_of_features_is_good(tmp_path: Path, monkeypatch) -> None:
    _, features, *_ = re.findall(r"```yaml\n(.*?)```", settings_page.PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text(features)
    Path("days").mkdir()
    rows = "user,city,genres,price,label\n" + "1,Ulm,War|Drama,3,1\n2,,,,0\n" * 4096
    Path("days/day_06.csv").write_text(rows)
    checked = CliRunner().invoke(app, ["train", "model.yaml", "--check"])
    tfhybrid.shutdown()
    assert checked.exit_code == 0, checked.output


def test_the_example_trains_on_the_days_that_the_page_makes(example, tmp_path, python) -> None:
    program = re.search(r"```python\n(.*?)```", settings_page.PAGE.read_text(), re.DOTALL)[1]
    (tmp_path / "make_days.py").write_text(program)
    made = python.run(str(tmp_path / "make_days.py"), cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    (tmp_path / "model.yaml").write_text(example)
    command = settings_page.PAGE.parents[1] / "tfhybrid" / "cli" / "__main__.py"
    trained = python.run(str(command), "train", "model.yaml", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    best = float(re.search(r"best possible AUC of day 7: ([\d.]+)", made.stdout)[1])
    reached = float(re.search(r", auc ([\d.]+),", trained.stdout)[1])
    assert 0.95 < (reached - 0.5) / (best - 0.5) < 1
