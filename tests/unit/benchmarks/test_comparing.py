"""Comparing two commits in a benchmark: what counts as moved, and what a run leaves behind."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.support.compare import commit_tree
from benchmarks.support.compare.__main__ import run
from benchmarks.support.compare.commit_tree import ComparisonError
from benchmarks.support.compare.differences import (
    Difference,
    chance,
    differences,
    figures_of,
    spread,
)
from benchmarks.support.launch import ROOT


@pytest.mark.parametrize(
    ("a", "b", "moved"),
    [
        ([10.0, 11.0], [10.0, 11.0], False),
        ([10.0, 11.0], [12.5, 13.0], True),
        ([10.0, 11.0], [8.0, 8.5], True),
        ([10.0, 11.0], [11.2, 11.4], False),  # apart, but nearer than A's runs are to each other
        ([10.0, 11.0, 11.0], [10.5, 30.0, 30.0], False),  # far, but one run of B is among A's
        ([5.0, 5.0], [5.0, 5.0], False),
        ([5.0, 5.0], [6.0, 6.0], True),
        ([10.0, 10.5, 11.0], [12.0, 12.1, 90.0], True),  # B's own spread does not hide a move
    ],
)
def test_a_figure_has_moved_if_all_of_b_is_further_from_a_than_a_is_from_itself(a, b, moved):
    assert Difference("figure", a, b).moved is moved


def test_chance_is_the_share_of_orders_in_which_the_sides_are_apart():
    assert chance(1) == 1
    assert chance(2) == pytest.approx(1 / 3)
    assert chance(5) == pytest.approx(1 / 126)


def test_ratio_and_spread_are_relative_to_medians():
    assert Difference("figure", [1.0, 2.0, 4.0], [3.0, 5.0, 9.0]).ratio == 2.5
    assert spread([8.0, 10.0, 11.0]) == pytest.approx(0.3)
    assert spread([-8.0, -10.0, -11.0]) == pytest.approx(0.3)
    assert math.isnan(Difference("figure", [0.0, 0.0], [1.0, 1.0]).ratio)
    assert math.isnan(spread([0.0, 0.0]))


def test_figures_are_the_measured_numbers_of_a_result():
    result = {
        "date": "2026-11-28",
        "machine": {"cores": 2},
        "setting": {"ranks": 2},
        "summary": {"tfhybrid": {"milliseconds": 3, "to_peer": None, "stale": False}},
        "runs": {"tfhybrid": [{"milliseconds": 3}, {"milliseconds": 9}]},
        "windows": [5.0, 1.0, 2.0],
        "bad": math.inf,
    }
    assert figures_of(result) == {"summary.tfhybrid.milliseconds": 3.0, "windows": 2.0}


def test_objects_of_a_list_are_figures_by_side():
    runs = [
        {"side": "plain", "bytes": 4},
        {"side": "tfhybrid", "bytes": 1},
        {"side": "plain", "bytes": 6},
    ]
    assert figures_of({"runs": runs, "rounds": [{"step": 1}, {"step": 2}]}) == {
        "runs.plain.bytes": 5.0,
        "runs.tfhybrid.bytes": 1.0,
        "rounds.step": 1.5,
    }


def test_only_figures_of_all_runs_are_compared():
    a = [{"old": 1.0, "both": 2.0}, {"old": 1.0, "both": 3.0}]
    b = [{"both": 4.0, "new": 1.0}, {"both": 5.0, "new": 1.0}]
    assert differences(a, b) == [Difference("both", [2.0, 3.0], [4.0, 5.0])]


def test_benchmarks_are_found_with_and_without_rooms(tmp_path):
    for folder in ("lookup", "step/start", "support/report"):
        file = tmp_path / "benchmarks" / folder / "__main__.py"
        file.parent.mkdir(parents=True)
        file.touch()
    modules = {"lookup": "benchmarks.lookup", "start": "benchmarks.step.start"}
    assert commit_tree.benchmarks_in(tmp_path) == modules
    assert commit_tree.benchmarks_in(ROOT)["step"] == "benchmarks.step.step"


def test_an_unknown_commit_is_refused():
    with pytest.raises(ComparisonError, match=r"Expected a commit.*Received: --no-such-commit"):
        commit_tree.commit_of("--no-such-commit")


@pytest.fixture
def tiny(tmp_path: Path):
    """Makes a tree with a benchmark of one line of code, and with results that it overwrites."""

    def make(code: str) -> Path:
        room = tmp_path / "benchmarks" / "room" / "tiny"
        room.mkdir(parents=True)
        (room / "__main__.py").write_text(f"import os, signal, subprocess, sys, time\n{code}\n")
        results = tmp_path / "benchmarks" / "results"
        results.mkdir()
        (results / "tiny.json").write_text('{"speed": 1}')
        (results / "other.json").write_text('{"speed": 2}')
        return tmp_path

    return make


def results_of(tree: Path) -> dict[str, object]:
    folder = tree / "benchmarks" / "results"
    return {file.name: json.loads(file.read_text()) for file in folder.iterdir()}


KEPT = {"tiny.json": {"speed": 1}, "other.json": {"speed": 2}}
WRITE = "open('benchmarks/results/{}.json', 'w').write('{{\"speed\": 3}}')"


def test_a_run_returns_what_it_wrote_and_leaves_the_results_as_they_were(tiny):
    tree = tiny(f"{WRITE.format('tiny')}; {WRITE.format('new')}")
    assert run(tree, "benchmarks.room.tiny", []) == {"new.speed": 3.0, "tiny.speed": 3.0}
    assert results_of(tree) == KEPT


def test_a_run_sees_its_arguments_and_the_package_of_its_own_tree(tiny):
    code = "assert sys.argv[1:] == ['--ids', 'uniform'] and os.getcwd() in sys.path[1:]"
    tree = tiny(f"{code}; {WRITE.format('tiny')}")
    assert run(tree, "benchmarks.room.tiny", ["--ids", "uniform"]) == {"tiny.speed": 3.0}


def test_a_run_that_fails_is_an_error_with_its_last_lines(tiny):
    tree = tiny(f"{WRITE.format('tiny')}; sys.exit('no peer here')")
    with pytest.raises(ComparisonError, match="no peer here"):
        run(tree, "benchmarks.room.tiny", [])
    assert results_of(tree) == KEPT


def test_a_run_without_a_result_is_an_error(tiny):
    with pytest.raises(ComparisonError, match=r"wrote no result.*--quick"):
        run(tiny(""), "benchmarks.room.tiny", ["--quick"])


# A worker of pytest ignores interrupts, and so would its children.
RUN = """import signal, sys
from pathlib import Path
from benchmarks.support.compare.__main__ import run
signal.signal(signal.SIGINT, signal.default_int_handler)
run(Path(sys.argv[1]), "benchmarks.room.tiny", [])
"""


def test_an_interrupt_ends_the_processes_of_a_run_and_restores_the_results(tiny):
    # The child holds the pipe of the run's output: the run does not return before its end.
    code = "child = subprocess.Popen(['sleep', '600']); open('pid', 'w').write(str(child.pid))"
    tree = tiny(f"{WRITE.format('tiny')}; {code}; os.kill(os.getppid(), 2); time.sleep(600)")
    interrupted = subprocess.run(
        [sys.executable, "-c", RUN, str(tree)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert interrupted.stderr.endswith("KeyboardInterrupt\n")
    child = Path("/proc", (tree / "pid").read_text(), "cmdline")
    assert not child.exists() or b"sleep" not in child.read_bytes()
    assert results_of(tree) == KEPT
