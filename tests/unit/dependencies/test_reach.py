"""What changes of this repository reach: the tests that they can break, and not many more."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tfhybrid
from tests.support.dependencies.graph import Graph
from tests.support.dependencies.imports import lazy_names
from tests.support.dependencies.repository import Repository, files_of
from tests.support.dependencies.selection import ctest_pattern, select

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph(Repository(ROOT, files_of(ROOT)))


@pytest.mark.parametrize(
    ("changed", "chosen", "left_out"),
    [
        (
            "custom_ops/core/util/crc32c.cc",
            "tests/native/util/crc32c_test.cc",
            "tests/native/compute/bags_test.cc",
        ),
        (
            "custom_ops/core/store/growing_index.cc",
            "tests/native/store/table_writer_test.cc",
            "tests/native/shm/numa_test.cc",
        ),
        (
            "custom_ops/core/update/gradient_message.cc",
            "tests/native/fuzz/messages.cc",
            "tests/native/fuzz/records.cc",
        ),
        (
            "custom_ops/core/update/recovery.cc",
            "tests/native/soak/random_kills.cc",
            "tests/native/util/hash_test.cc",
        ),
        (
            "custom_ops/tf/lookup_op.cc",
            "tests/unit/layers/test_bags.py",
            "tests/unit/test_settings.py",
        ),
        (
            "tests/native/golden/store/store",
            "tests/native/golden/golden_store_test.cc",
            "tests/native/golden/golden_values_test.cc",
        ),
        (
            "tfhybrid/cli/plan_command.py",
            "tests/unit/cli/test_plan.py",
            "tests/unit/layers/test_bags.py",
        ),
        (
            "tfhybrid/data/generator.py",
            "tests/unit/data/test_generator.py",
            "tests/unit/data/samples/test_ragged.py",
        ),
        (
            "tfhybrid/data/formats/libfm.py",
            "tests/unit/cli/data/test_convert.py",
            "tests/unit/store/test_table.py",
        ),
        (
            "tfhybrid/job/job.py",
            "tests/parallel/test_exchange.py",
            "tests/unit/data/samples/test_ragged.py",
        ),
        (
            "tests/unit/cli/conftest.py",
            "tests/unit/cli/checkpoint/test_diff.py",
            "tests/unit/data/test_batches.py",
        ),
        (
            "tests/integration/jobs/saving.py",
            "tests/integration/test_killed_saves.py",
            "tests/integration/test_forgetting.py",
        ),
        (
            "tests/integration/jobs/endless.py",
            "tests/integration/test_killed_ranks.py",
            "tests/integration/test_forgetting.py",
        ),
        (
            "tests/support/forked/server.py",
            "tests/integration/test_hot_restart.py",
            "tests/integration/test_doctor.py",
        ),
        (
            "examples/training_loop.py",
            "tests/unit/documentation/test_examples.py",
            "tests/unit/documentation/test_readme.py",
        ),
        (
            "examples/project/launch/hosts",
            "tests/integration/test_launch.py",
            "tests/integration/test_failures.py",
        ),
        (
            "docs/data.md",
            "tests/unit/documentation/test_docs.py",
            "tests/unit/documentation/test_examples.py",
        ),
    ],
)
def test_a_change_reaches(graph: Graph, changed: str, chosen: str, left_out: str) -> None:
    assert changed in graph.reach(chosen)
    assert changed not in graph.reach(left_out)


@pytest.mark.parametrize("changed", ["requirements/versions.txt", "custom_ops/CMakeLists.txt"])
def test_the_build_reaches_every_test(graph: Graph, changed: str) -> None:
    selection = select(graph, {changed})
    assert {suite: len(files) for suite, files in selection.chosen.items()} == selection.total
    assert min(selection.total.values()) > 0


def test_the_build_of_native_tests_reaches_those(graph: Graph) -> None:
    selection = select(graph, {"tests/native/CMakeLists.txt"})
    assert len(selection.chosen["native"]) == selection.total["native"]
    assert selection.chosen["parallel"] == []


def test_a_conftest_reaches_its_folder(graph: Graph) -> None:
    selection = select(graph, {"tests/unit/conftest.py"})
    assert len(selection.chosen["unit"]) == selection.total["unit"]
    assert selection.chosen["parallel"] == []
    # Of the others, only those that import from it.
    assert "tests/integration/test_train.py" not in selection.chosen["integration"]


def test_all_names_of_the_facade_are_known() -> None:
    tree = ast.parse(Path(tfhybrid.__file__).read_text())
    assert {*tfhybrid.__all__} - {"__version__"} <= lazy_names("tfhybrid", tree).keys()


def test_ctest_knows_tests_by_suite_and_programs_by_name(graph: Graph) -> None:
    files = ["tests/native/util/crc32c_test.cc", "tests/native/fuzz/table.cc"]
    pattern = ctest_pattern(graph.repository, files)
    assert re.search(pattern, "Crc32cTest.GoldenValues")
    assert re.search(pattern, "Prefix/Crc32cTest.GoldenValues/3")
    assert re.search(pattern, "fuzz_replay_table")
    assert not re.search(pattern, "OtherCrc32cTest.GoldenValues")
    assert not re.search(pattern, "random_kills")
