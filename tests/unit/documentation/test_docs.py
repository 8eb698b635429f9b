"""Every block of Python in the documentation runs, page by page, and every link leads somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "benchmarks/README.md"])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# test_readme.py runs the README's block, and test_examples.py that of the quick start.
ELSEWHERE = (ROOT / "README.md", ROOT / "docs" / "quick_start.md")
WITH_CODE = [p for p in PAGES[:-1] if BLOCK.search(p.read_text()) and p not in ELSEWHERE]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")

# What a reader has by the time that a page shows code.
IMPORTS = """
import keras
import numpy as np

import tfhybrid

def dataset_of(user="user", item="item"):
    log = tfhybrid.data.ClickLog({user: 1000, item: 200}, seed=1)
    return tfhybrid.data.Batches(log.clicks(0, 2048), 512, seed=1, shard=tfhybrid.data.Shard(0, 1))
"""
JOB = "tfhybrid.init()\n"
DATA = "batches = dataset_of()\ndataset = batches.dataset()\n"
MODEL = """
def compiled(*features):
    model = tfhybrid.models.lr(
        features,
        table=tfhybrid.TableConfig(dim=4, optimizer=tfhybrid.optimizers.Adagrad(0.05)),
    )
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3))
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    return model

"""
FILES = """
import pathlib
import pyarrow as pa
import pyarrow.parquet

lines = "".join(f"{i % 2},{i},{i % 7}\\n" for i in range(5000))
pathlib.Path("clicks").mkdir()
for file in ("train.csv", "clicks/0001.csv"):
    pathlib.Path(file).write_text("label,user,item\\n" + lines)
pathlib.Path("clicks/_END").touch()
columns = {"label": [0, 1] * 2500, "user": range(5000), "item": [None, *range(4999)]}
pa.parquet.write_table(pa.table(columns), "clicks/day_1.parquet")
"""
# Processes of a stream, which end by themselves.
STREAM = """
import json
import pathlib
import socket
import subprocess
import sys

with socket.socket() as one, socket.socket() as other:
    one.bind(("127.0.0.1", 0))
    other.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in (one, other)]
pathlib.Path("token").write_text("a secret of the test")
pathlib.Path("kept").mkdir()
settings = {
    "folder": "kept",
    "provider": f"127.0.0.1:{ports[0]}",
    "sync": f"127.0.0.1:{ports[1]}",
    "token_file": "token",
    "columns": {"user": "int64", "item": "int64", "medium": "string", "label": "float32"},
    "routes": {"columns": ["medium"], "queues": {"tv": "tv"}, "models": {"ads": ["tv"]}},
}
pathlib.Path("stream.yaml").write_text(json.dumps(settings))  # JSON is YAML
row = {"user": 1, "item": 2, "medium": "tv", "label": 1.0}
pathlib.Path("rows.jsonl").write_text((json.dumps(row) + "\\n") * 1000)
command = [sys.executable, "-m", "tfhybrid.cli", "stream"]
for role in ("sync", "provide"):
    subprocess.Popen(["timeout", "60", *command, role, "stream.yaml"])
subprocess.run([*command, "feed", "stream.yaml", "rows.jsonl"], check=True)
for name in ("impressions", "clicks"):
    tfhybrid.stream.open_queue(name, write=True).close()
"""
# Weights of the model, published as a sync unit does it.
PUBLISHED = """
import atexit
import pathlib
import numpy
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.settings import shm_directory
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec
from tfhybrid.stream.sync_unit.publisher import PublishRules
from tfhybrid.stream.sync_unit.sync_unit import SyncUnit

variables = [*model.trainable_variables, *model.non_trainable_variables]
dense = [numpy.asarray(each) for each in variables if not isinstance(each, TableProxy)]
tables = {
    name: TableSpec(table.dim, table.config.initializer.native)
    for name, table in tables_of(model).items()
}
unit = SyncUnit(
    ["ads"],
    pathlib.Path("kept"),
    pathlib.Path(shm_directory()),
    publish={"ads": PublishRules("publications/ads")},
)
atexit.register(unit.close)
unit.models["ads"].open(ModelSpec(tables, [each.shape for each in dense]), dense)
unit.publishers["ads"].publish()
"""
READY = IMPORTS + JOB + DATA + MODEL + 'model = compiled("user", "item")\n'
STATISTICS = """import json
import pathlib
of_price = {"mean": 2.1, "variance": 3.4, "quantiles": [1.0, 2.0, 5.0]}
pathlib.Path("statistics.json").write_text(json.dumps({"columns": {"price": of_price}}))
"""
BEFORE = {
    "README": "",
    "passes": "",
    "choosing": IMPORTS + "import tensorflow as tf\n" + JOB,
    "keras": IMPORTS + JOB + DATA,
    "features": STATISTICS,
    "hot_restart": IMPORTS + DATA + MODEL,
    "data": READY + FILES,
    "online_training": READY + STREAM,
    "serving": READY + PUBLISHED,
    # Its own layers take the names.
    "how_to": IMPORTS
    + JOB
    + MODEL
    + 'model = compiled("u", "i")\ndataset = dataset_of("u", "i").dataset()\n',
}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_its_code_runs(page, tmp_path, python):
    blocks = BLOCK.findall(page.read_text())
    script = tmp_path / "page.py"
    script.write_text("\n".join([BEFORE.get(page.stem, READY), *blocks]))
    run = python.run(str(script), cwd=tmp_path)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_its_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_navigation_has_every_page():
    listed = re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1])
    pages = [name(page).removeprefix("docs/") for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_have_titles_and_not_file_names(page):
    texts = re.findall(r"\[`?([^\]`]+)`?\]\((?!https?:)[^)]+\)", page.read_text())
    assert [text for text in texts if text.endswith(".md")] == []


def texts_of(file: Path) -> Iterator[str]:
    """Yields the texts in a program that are not docstrings."""
    tree = ast.parse(file.read_text())
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
    docstrings = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    yield from (
        node.value
        for node in constants
        if isinstance(node.value, str) and id(node) not in docstrings
    )


def test_no_message_names_a_file_that_an_installed_package_lacks():
    files = sorted((ROOT / "tfhybrid").rglob("*.py"))
    assert [text for file in files for text in texts_of(file) if "docs/" in text] == []
