"""The project of `tfhybrid new`: what its README says.

launch/hosts and launch/slurm run in test_launch.py, kubernetes/ and Dockerfile are judged in
tests/unit/test_manifests.py.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml

from benchmarks.storage.export import stock_environment
from tests.support.free_ports import two_free_ports
from tests.support.hosts import ACTIVE, ROOT
from tests.support.roles.clusters import until
from tfhybrid.monitoring.metrics import PREFIX

pytestmark = pytest.mark.weekly
PROJECT = ROOT / "examples" / "project"
ROWS = 40_000  # as the README has it
STREAMED = 20_000


def run(folder: Path, *command: str) -> str:
    """Runs a command in a folder; returns what it wrote."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=ACTIVE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def scores(written: str) -> str:
    """Returns the last line of metrics of rank 0."""
    return re.findall(r"step \d+, auc .*", written)[-1]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `tfhybrid new` makes of examples/project, and data."""
    folder = tmp_path_factory.mktemp("new") / "ads"
    run(folder.parent, "tfhybrid", "new", "ads")
    names = {each.name for each in PROJECT.iterdir()} - {"output", "__pycache__"}
    assert {each.name for each in folder.iterdir()} == names
    run(folder, "python", "data/make.py", "--rows", str(ROWS))
    events = folder / "data/stream.jsonl"
    events.write_text("".join(events.read_text().splitlines(keepends=True)[:STREAMED]))
    return folder


@pytest.fixture(scope="module")
def checked(project: Path) -> str:
    """What the commands of the workflow write: train.py on two ranks, and a prediction."""
    workflow = yaml.safe_load((project / ".github/workflows/check.yaml").read_text())
    lines = [step["run"] for step in workflow["jobs"]["check"]["steps"] if "run" in step]
    return "".join(run(project, "bash", "-c", line) for line in lines)


def test_the_workflow_trains_and_predicts(project: Path, checked: str) -> None:
    assert "model.yaml: good" in checked
    reached = float(re.search(r"auc ([\d.]+)", scores(checked))[1])
    best = float(
        re.search(r"best possible one is ([\d.]+)\)", (project / "README.md").read_text())[1]
    )
    assert 0.95 < (reached - 0.5) / (best - 0.5) < 1
    *_, last, unseen = re.findall(r"^\{'user': .*\}: (0\.\d+)$", checked, re.MULTILINE)
    assert 0 < float(last) < 1
    assert 0 < float(unseen) < 1
    assert sorted(path.name for path in (project / "output").iterdir()) == [
        "checkpoints",
        "exported",
    ]


def test_the_export_needs_tensorflow_alone(project: Path, checked: str, tmp_path: Path) -> None:
    (tmp_path / "predict.py").write_text(
        "import importlib.util\n"
        "assert not any(map(importlib.util.find_spec, ('tfhybrid', 'horovod')))\n"
        + (project / "predict.py").read_text().replace("from __future__ import annotations\n", "")
    )
    alone = str(stock_environment.make(tmp_path / "stock"))
    command = (alone, "-I", str(tmp_path / "predict.py"))
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == checked[checked.index("{'user': ") :]


def test_the_twin_resumes_and_ends_with_the_same_bits(
    project: Path, checked: str, tmp_path: Path
) -> None:
    """model.yaml for one epoch and then for both, against train.py; it serves metrics."""
    twin = tmp_path / "twin"
    shutil.copytree(project, twin, ignore=shutil.ignore_patterns("output"))
    train = ("horovodrun", "--gloo", "-np", "2", "tfhybrid", "train")
    text = (twin / "model.yaml").read_text()
    (twin / "shorter.yaml").write_text(text.replace("epochs: 2", "epochs: 1"))
    assert scores(run(twin, *train, "shorter.yaml")).startswith("step 157,")
    written, page = served_by(twin, two_free_ports(), *train, "model.yaml")
    assert "continuing at epoch 1, step 0" in written
    assert scores(written) == scores(checked)

    command = ("tfhybrid", "checkpoint", "diff", "--json")
    folders = (str(each / "output" / "checkpoints") for each in (project, twin))
    diff = json.loads(run(twin, *command, *folders))
    assert [name for name in diff["dense"]["changed"] if "/random/" not in name] == []
    for table in diff["tables"]["compared"].values():
        assert not any(table[name] for name in ("added", "removed", "changed", "changed_states"))

    served = set(re.findall(rf"^({PREFIX}\w+)", page, re.MULTILINE))
    drawn = set(re.findall(rf"{PREFIX}\w+", (twin / "dashboards/grafana.json").read_text()))
    assert {f"{PREFIX}samples_total", f"{PREFIX}rows"} <= served & drawn


def served_by(folder: Path, port: int, *command: str) -> tuple[str, str]:
    """Runs a job that serves metrics; returns what it wrote, and the last page of metrics."""
    job = subprocess.Popen(
        command,
        cwd=folder,
        env={**ACTIVE, "TFHYBRID_METRICS_PORT": str(port)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    last = ""

    def ended() -> bool:
        nonlocal last
        with (
            contextlib.suppress(OSError),  # not yet, or not any more
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page,
        ):
            last = page.read().decode()
        return job.poll() is not None

    until(ended, seconds=120)
    written = job.stdout.read()
    assert job.returncode == 0, written
    return written, last


def test_the_stream_trains_on_and_publishes(project: Path, checked: str) -> None:
    port = two_free_ports()
    file = project / "stream.yaml"
    text = file.read_text().replace(":7001", f":{port}").replace(":7002", f":{port + 1}")
    file.write_text(text)
    with subprocess.Popen(
        ["tfhybrid", "stream", "run", "stream.yaml"], cwd=project, env=ACTIVE
    ) as stream:
        try:
            until((project / "output" / "stream-token").exists, seconds=60)
            run(project, "tfhybrid", "stream", "feed", "stream.yaml", "data/stream.jsonl")
            log = project / "output/stream/processes/trainer-0.log"

            def trained() -> bool:
                assert stream.poll() is None
                look = ("tfhybrid", "stream", "top", "stream.yaml", "--count", "1", "--json")
                seen = json.loads(run(project, *look))
                return seen.get("stream_lag_records", {}).get("ads/clicks") == 0

            until(trained, seconds=120)
        finally:
            stream.send_signal(signal.SIGTERM)
    assert stream.returncode == 0
    assert "Restored output/checkpoints/step-0000000314" in log.read_text()
    assert (project / "output/published/current.json").exists()
