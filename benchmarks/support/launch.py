"""Starts one side of a benchmark under horovodrun and collects its one line of JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PEERS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfhybrid" / "peers"


class SideFailedError(RuntimeError):
    """A side ended with an error or without a result."""


def run_side(
    module: str,
    options: list[str],
    ranks: int,
    python: Path | None = None,
    timeout: float = 1200,
    variables: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Runs `python -m module options` on `ranks` ranks of this host.

    Args:
        module: the side's module, such as "benchmarks.step.step.bound".
        options: its command line.
        ranks: number of ranks.
        python: interpreter whose environment has the side; this one by default.
        timeout: seconds after which the side counts as failed.
        variables: of its environment, beside this process's.

    Returns:
        The JSON object that rank 0 printed.

    Raises:
        SideFailedError: the side failed; the message ends with its last lines.
    """
    # Not resolved: a virtual environment's python is a link, and horovodrun lies beside the link.
    python = python or Path(sys.executable)
    environment = {
        **os.environ,
        **(variables or {}),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    # An environment without Horovod takes this one's, which then is no more than a launcher.
    horovodrun = python.parent / "horovodrun"
    if not horovodrun.exists():
        horovodrun = Path(sys.executable).with_name("horovodrun")
    command = [str(horovodrun), "-np", str(ranks), "--gloo"]
    command += [str(python), "-m", module, *options]
    try:
        run = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired as error:
        raise SideFailedError(f"{module} did not end within {timeout} s.") from error
    if run.returncode:
        raise SideFailedError(f"{module} failed:\n{tail(run.stdout + run.stderr)}")
    return result_in(run.stdout)


def benchmark(name: str) -> str:
    """Returns the module of a benchmark, such as "benchmarks.tables.lookup"."""
    (file,) = (ROOT / "benchmarks").glob(f"*/{name}/__main__.py")
    return ".".join(file.parent.relative_to(ROOT).parts)


def run_alone(module: str, options: list[str]) -> dict[str, object]:
    """Runs `python -m module options`, which starts what else it needs, and returns its result.

    Raises:
        SideFailedError: It failed.
    """
    command = [sys.executable, "-m", module, *options]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SideFailedError(f"{module} failed:\n{tail(run.stdout + run.stderr)}")
    return result_in(run.stdout)


def result_in(output: str) -> dict[str, object]:
    """Returns the JSON object that rank 0 printed, out of what a job wrote.

    Raises:
        SideFailedError: there is none.
    """
    # horovodrun puts "[rank]<stdout>:" before every line.
    results = [line[line.index("{") :] for line in output.splitlines() if '{"side"' in line]
    if not results:
        raise SideFailedError(f"no result:\n{tail(output)}")
    return json.loads(results[-1])


def tail(output: str) -> str:
    """Returns the last lines of what a job wrote."""
    return "\n".join(output.splitlines()[-30:])


def peer_python(peer: str) -> Path:
    """Returns the interpreter that `benchmarks/support/peers/install_PEER` made.

    Args:
        peer: "tfra" or "torchrec".

    Raises:
        SideFailedError: It did not.
    """
    environment = PEERS / peer
    if not (environment / ".complete").exists():
        raise SideFailedError(f"run benchmarks/support/peers/install_{peer} first.")
    return environment / "bin" / "python"


def machine() -> dict[str, object]:
    """Returns the class of this machine: processor, cores, memory, kernel."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30),
        "kernel": platform.release().split("-")[0],
    }


def write_result(name: str, result: dict[str, object]) -> Path:
    """Writes `benchmarks/results/<name>.json` with the date and the machine class, and names it."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    here = machine()
    header = {"date": time.strftime("%Y-%m-%d"), "machine": here}
    Console(highlight=False).print(
        f"{here['processor']}, {here['cores']} cores, {here['memory_gib']} GiB, "
        f"Linux {here['kernel']}"
    )
    path.write_text(json.dumps(header | result, indent=2) + "\n")
    return path
