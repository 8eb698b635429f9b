from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.support.keras_versions import needs_keras_3
from tfhybrid.cli.doctor import findings
from tfhybrid.cli.doctor.findings import Level
from tfhybrid.cli.main import app
from tfhybrid.cli.terminal import console

DOCTOR = [sys.executable, "-m", "tfhybrid.cli", "doctor"]


def test_this_machine_is_looked_at_and_nothing_is_wrong() -> None:
    """It trains in the tests beside this one."""
    run = subprocess.run([*DOCTOR, "--json"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    (found,) = json.loads(run.stdout).values()
    by_subject = {finding["what"]: finding for finding in found}
    subjects = {
        "tfhybrid",
        "TensorFlow",
        "Keras",
        "Horovod",
        "huge pages",
        "memory limit",
        "logind",
    }
    assert subjects | {"limits", "processors", "network", "GPUs"} < set(by_subject)
    assert "gloo" in by_subject["Horovod"]["found"]
    for finding in found:
        assert finding["level"] != "error"
        assert bool(finding["mend"]) == (finding["level"] != "good"), finding


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_dockers_default_of_64_mb_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    script = f"mount -t tmpfs -o size=64m tmpfs {tmp_path} && exec {' '.join(DOCTOR)} --json"
    run = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script],
        env={**os.environ, "TFHYBRID_SHM_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    (store,) = [f for f in json.loads(run.stdout)["this host"] if f["what"] == f"store {tmp_path}"]
    assert store["level"] == "error"
    assert "tmpfs, 67.1 MB" in store["found"]
    assert "docker run --shm-size" in store["mend"]


def test_a_processor_without_avx_is_an_error(tmp_path: Path) -> None:
    features = tmp_path / "cpuinfo"
    features.write_text("flags\t\t: fpu sse sse2 avx avx2\n")
    assert findings.processors(str(features)).level == Level.GOOD
    features.write_text("flags\t\t: fpu sse sse2\n")
    finding = findings.processors(str(features))
    assert finding.level == Level.ERROR
    assert finding.state.endswith("without AVX")


@pytest.mark.parametrize(
    ("built", "mend"),
    [
        (["2.13.*", "2.14.*"], "pip install 'tensorflow==2.14.*'"),
        (["2.14.1"], "pip install --force-reinstall --no-deps tfhybrid, which rebuilds the ops"),
    ],
)
def test_ops_of_another_tensorflow_are_an_error(built, mend, monkeypatch) -> None:
    """A wheel cannot be rebuilt: there another TensorFlow is installed."""
    monkeypatch.setattr(findings, "built_releases", lambda: built)
    monkeypatch.setattr(findings, "_ABI", "raise ImportError('native ops for others only')")
    finding = findings.tensorflow()
    assert (finding.level, finding.mend) == (Level.ERROR, mend)
    assert finding.state.endswith(
        f"ops built for {', '.join(built)}: ImportError: native ops for others only"
    )


def test_a_store_that_cannot_be_is_an_error() -> None:
    found = findings.shared_memory("/nowhere")
    assert (found.level, found.state) == (Level.ERROR, "cannot be written")
    assert "TFHYBRID_SHM_DIR" in found.mend


@needs_keras_3
def test_the_keras_of_tensorflow_is_told_from_keras(monkeypatch) -> None:
    assert findings.keras().level == Level.GOOD
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    found = findings.keras()
    assert found.level == Level.NOTE
    assert found.state.startswith(f"{metadata.version('tf_keras')} as tf.keras, beside 3.")


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch) -> None:
    """NVIDIA's tool as it answers on a machine with one GPU."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'A GPU, 81559 MiB'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("nvidia_smi")
def test_a_gpu_that_tensorflow_does_not_use_is_a_note() -> None:
    found = findings.gpus()
    assert (found.level, found.state) == (Level.NOTE, "A GPU, 81559 MiB")


@pytest.mark.usefixtures("nvidia_smi")
@pytest.mark.parametrize(
    ("tensorflow", "mend"),
    [
        ("2.18.1", "HOROVOD_GPU_OPERATIONS=NCCL scripts/horovod"),
        ("2.21.0", "only up to TensorFlow 2.18"),
    ],
)
def test_gpus_that_horovod_cannot_use_are_a_warning(tensorflow, mend, monkeypatch) -> None:
    answer = json.dumps([1, False, tensorflow])
    run = subprocess.CompletedProcess([], 0, answer, "")
    monkeypatch.setattr(findings, "_python", lambda *_, **__: run)
    found = findings.gpus()
    assert found.level == Level.WARNING
    assert "TensorFlow uses 1, but Horovod was not built for GPUs" in found.state
    assert mend in found.mend


def test_on_a_terminal_it_says_what_it_waits_for(monkeypatch) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(console, "_errors", terminal)
    checks = (findings.versions, findings.limits)
    monkeypatch.setattr(findings, "CHECKS", checks)
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert [*json.loads(result.stdout)] == ["this host"]
    assert "Checking versions ..." in terminal.file.getvalue()
    assert "Checking limits ..." in terminal.file.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_long_lines_are_folded_on_a_terminal_alone(terminal: bool, monkeypatch) -> None:
    long = findings.Finding("logind", "on" + " word" * 20, Level.WARNING, "do" + " it" * 30)
    monkeypatch.setattr(findings, "CHECKS", (lambda: long,))
    output = Console(file=io.StringIO(), force_terminal=terminal, width=80, color_system=None)
    monkeypatch.setattr(console, "_output", output)
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 0
    indent = " " * 8
    assert output.file.getvalue().splitlines() == (
        [
            "warning logind: on" + " word" * 12,
            indent + " ".join(["word"] * 8),
            indent + "do" + " it" * 23,
            indent + " ".join(["it"] * 7),
        ]
        if terminal
        else ["warning logind: on" + " word" * 20, indent + "do" + " it" * 30]
    )


@pytest.mark.parametrize("hosts", ["", "a,,b", "-oProxyCommand=x:1"])
def test_hosts_that_are_none_are_refused(hosts: str) -> None:
    result = CliRunner().invoke(app, ["doctor", "--hosts", hosts])
    assert result.exit_code == 1
    assert f"--hosts must be like host1:4,host2:4. Received: {hosts!r}" in " ".join(
        result.output.split()
    )


def test_the_disk_of_tables_in_files_is_measured(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["doctor", "--files", str(tmp_path), "--json"])
    (found,) = json.loads(run.stdout).values()
    (disk,) = [finding for finding in found if finding["what"] == f"files {tmp_path}"]
    assert re.search(r", [\d,]+ reads of 4 KiB a second", disk["found"])
    assert list(tmp_path.iterdir()) == []


def test_memory_is_no_disk(shm_directory: Path) -> None:
    disk = findings.disk(str(shm_directory))
    assert disk.level is Level.WARNING
    assert "this is memory" in disk.mend


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    disk = findings.disk(str(tmp_path / "nowhere"))
    assert disk.level is Level.ERROR
    assert "on every host" in disk.mend
