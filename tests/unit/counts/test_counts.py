"""The figures of `scripts/counts` in small trees with one fault of each kind."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.support.counts.__main__ import FILE, main
from tests.support.counts.figures import FIGURES, count
from tests.support.counts.tree import Tree

ARGUMENTS = ", ".join(f"a{number}" for number in range(7))
METHODS = "\n".join(f"    def m{number}(self): ..." for number in range(21))
STATEMENTS = "\n".join("    pass" for _ in range(42))

# The files of a tree by the figure that is 1 in it; every other figure is 0.
FAULTS: dict[str, dict[str, str]] = {
    "args_without_noun": {
        "tfhybrid/a.py": '''
            def f(keys):
                """Reads.

                Args:
                    keys: Of the rows.
                """
        '''
    },
    "args_that_are_a_clause": {
        "tfhybrid/a.py": '''
            class Rows:
                """Rows.

                Attributes:
                    keys (list): What the rows belong to.
                        Of a batch: this line continues the entry.
                """
        '''
    },
    "docstrings_that_open_as_a_riddle": {"tfhybrid/a.py": '"""Of the process, likewise."""'},
    "variables_its_told_said_found_asked_wanted_made": {"tfhybrid/a.py": "told = 1\nprint(its)"},
    "damaged_docstrings": {
        "tfhybrid/a.py": '''
            """Rows.

            Reads
            the rows.
            ```python
            code
            more
            ```
            """
        '''
    },
    "file_names_twice": {"tfhybrid/a/rows.py": "", "tfhybrid/b/rows.py": ""},
    "class_names_twice": {"tfhybrid/a.py": "class A: ...", "tfhybrid/b.py": "class A: ..."},
    "core_class_names_twice": {
        "custom_ops/core/a.h": "class Rows {\n};\nclass Keys;\n",
        "custom_ops/core/b.h": "struct Rows final {\n};\nclass Keys;\n",
    },
    "rooms_of_more_than_20_files": {f"tfhybrid/room/m{number}.py": "" for number in range(21)},
    "modules_importing_more_than_15": {
        "tfhybrid/a.py": "\n".join(f"from tfhybrid.room{n % 2} import m{n}" for n in range(16)),
        **{f"tfhybrid/room{number % 2}/m{number}.py": "" for number in range(16)},
    },
    "environment_reads_outside_settings": {
        "tfhybrid/settings.py": "import os\nos.environ",
        "tfhybrid/cli/store.py": '"""Not os.environ."""\nimport os\nos.environ[os.getenv("A")]',
    },
    "functions_over_6_parameters": {
        "tfhybrid/a.py": f"def f({ARGUMENTS}): ...",
        "tfhybrid/b.py": "class A:\n    def f(self, a, b, c, d, e, f): ...",
    },
    "functions_over_40_lines": {"tfhybrid/a.py": f"def f():\n{STATEMENTS}"},
    "classes_over_20_methods": {"tfhybrid/a.py": f"class A:\n{METHODS}"},
    "ownership_questions": {"tfhybrid/a.py": "if nodes is not None: ...\n# nodes is None"},
    "host_port_parsers": {"tfhybrid/a.py": 'host, _, port = address.partition(":")'},
    "handlers_by_hand": {"tfhybrid/a.py": "def read() -> Answer: ..."},
    "current_job_calls": {"tfhybrid/a.py": "current_job()"},
    "members[Engine]": {
        "custom_ops/core/engine/engine.h": """
            class Engine {
              int Rows() const { return rows_; }  // the rows; of a table
            };
        """
    },
    "members[TableWriter]": {
        "custom_ops/core/store/table_writer.h": "class TableWriter { int a; };"
    },
    "imports_from_test_modules": {
        "tests/unit/test_a.py": "from tests.unit import test_b\nfrom tests.support import rows"
    },
    "patches_whose_file_is_gone": {
        "tests/a.patch": "Noticed by: native\n+++ b/tests/a.patch\n+++ b/gone.py\n"
    },
    "patches_whose_suite_is_gone": {
        "tests/a.patch": "Noticed by: tests/a.patch tests/gone.py\n+++ b/tests/a.patch\n"
    },
    "dead_paths_in_docs": {"docs/a.md": "`tfhybrid/gone.py` `docs/gone.md` `tfhybrid/a.py`"},
}
# Circles of files are circles of rooms, too: they lie in rooms of two levels.
CIRCLES: dict[str, dict[str, str]] = {
    "files": {"a/b/c.py": "import tfhybrid.a.b.d", "a/b/d.py": "from tfhybrid.a.b.c import C"},
    "rooms_depth1": {"a/c.py": "from tfhybrid.b import d", "b/e.py": "from tfhybrid.a import f"},
    "rooms_depth2": {"a/b/c.py": "import tfhybrid.a.d.e", "a/d/f.py": "import tfhybrid.a.b.g"},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, {"tfhybrid/__init__.py": "", "tfhybrid/a.py": ""})
    return tmp_path


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def faults_in(root: Path) -> dict[str, int]:
    return {name: value for name, value in count(Tree(root)).items() if value}


def test_each_figure_has_a_tree_with_its_fault() -> None:
    assert {*FAULTS, *(f"circles_of_{name}" for name in CIRCLES)} == {*FIGURES}


@pytest.mark.parametrize("figure", FAULTS)
def test_a_fault_is_counted_once_and_by_its_figure_alone(root: Path, figure: str) -> None:
    write(root, FAULTS[figure])
    assert faults_in(root) == {figure: 1}


@pytest.mark.parametrize("name", CIRCLES)
def test_a_circle_is_counted(root: Path, name: str) -> None:
    write(root, {f"tfhybrid/{file}": text for file, text in CIRCLES[name].items()})
    others = {"rooms_depth1": "a/f.py b/d.py", "rooms_depth2": "a/d/e.py a/b/g.py"}
    write(root, {f"tfhybrid/{file}": "" for file in others.get(name, "").split()})
    assert f"circles_of_{name}" in faults_in(root)
    if name == "files":
        assert faults_in(root) == {"circles_of_files": 1}


def test_a_figure_above_its_kept_value_fails(root: Path, capfd) -> None:
    write(root, FAULTS["host_port_parsers"] | {FILE: json.dumps(dict.fromkeys(FIGURES, 0))})
    assert main(root, []) == 1
    output, errors = capfd.readouterr()
    assert "     1  host_port_parsers  (kept: 0)\n" in output
    assert "host_port_parsers is 1, above its kept value 0" in errors


def test_keep_lowers_values_and_never_raises_one(root: Path) -> None:
    kept = dict.fromkeys(FIGURES, 0) | {"handlers_by_hand": 5, "file_names_twice": 5}
    write(root, FAULTS["host_port_parsers"] | {"tfhybrid/b.py": "def f() -> Answer: ..."})
    write(root, {FILE: json.dumps(kept)})
    assert main(root, ["--keep"]) == 1
    assert json.loads((root / FILE).read_text()) == dict.fromkeys(FIGURES, 0) | {
        "handlers_by_hand": 1
    }


def test_a_figure_without_a_kept_value_fails_until_it_is_kept(root: Path, capfd) -> None:
    write(root, {FILE: '{"old_figure": 0}'})
    assert main(root, []) == 1
    errors = capfd.readouterr().err
    assert "old_figure is kept but not counted" in errors
    assert "dead_paths_in_docs is counted but not kept" in errors
    assert main(root, ["--keep"]) == 0
    assert main(root, []) == 0


def test_list_prints_the_places(root: Path, capfd) -> None:
    write(root, FAULTS["class_names_twice"])
    assert main(root, ["--list", "class_names_twice"]) == 0
    assert capfd.readouterr().out == "A: tfhybrid/a.py:1, tfhybrid/b.py:1\n"
