"""`scripts/test --changed` and `--of` in a small repository."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.support.dependencies.repository import changed_files
from tests.support.dependencies.selection import main

FILES = {
    "tfhybrid/__init__.py": """
        from tfhybrid._lazy import lazy
        _SOURCES = {"Table": "store", "Layer": "layers"}
        __getattr__, __dir__ = lazy(__name__, _SOURCES)
    """,
    "tfhybrid/_lazy.py": "",
    "tfhybrid/store.py": "class Table: ...",
    "tfhybrid/layers.py": "class Layer: ...",
    "tests/conftest.py": """
        import pytest

        @pytest.fixture
        def layer():
            import tfhybrid
            return tfhybrid.Layer()
    """,
    "tests/unit/test_table.py": """
        import tfhybrid

        def test_table():
            tfhybrid.Table()
    """,
    "tests/unit/test_layer.py": "def test_layer(layer): ...",
    "tests/unit/test_all.py": "import tfhybrid\nnames = dir(tfhybrid)",
    "tests/native/sum_test.cc": "TEST(SumTest, IsASum) {}",
    ".gitignore": "*.log",
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A small repository whose files are all committed."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    author = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    git(tmp_path, *author, "commit", "--quiet", "--message", "All")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", folder, *arguments], check=True)


def test_changed_is_what_git_would_commit(clone: Path) -> None:
    assert changed_files(clone, "HEAD") == set()
    (clone / "tfhybrid/store.py").write_text("")
    (clone / "tfhybrid/layers.py").rename(clone / "tfhybrid/moved.py")
    (clone / "run.log").touch()
    moved = {"tfhybrid/layers.py", "tfhybrid/moved.py"}
    assert changed_files(clone, "HEAD") == {"tfhybrid/store.py", *moved}


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("tfhybrid/store.py", ["all", "table"]),
        ("tfhybrid/layers.py", ["all", "layer"]),
        ("tfhybrid/__init__.py", ["all", "layer", "table"]),
        ("tests/conftest.py", ["all", "layer", "table"]),
        ("tests/unit/test_table.py", ["table"]),
    ],
)
def test_names_imported_at_first_use_are_followed(
    clone: Path, capfd: pytest.CaptureFixture[str], changed: str, tests: list[str]
) -> None:
    with (clone / changed).open("a") as file:
        file.write("\n# changed\n")
    main(clone, "--since", "HEAD", "native", "unit")
    output, said = capfd.readouterr()
    assert output.splitlines() == [f"unit\ttests/unit/test_{name}.py" for name in tests]
    assert said == f"The changes reach {len(tests)} of 3 files of unit.\n"


def test_a_deleted_module_reaches_those_who_import_it(clone: Path, capfd) -> None:
    git(clone, "rm", "--quiet", "tfhybrid/store.py", "tests/unit/test_all.py")
    main(clone, "--since", "HEAD", "unit")
    assert capfd.readouterr().out == "unit\ttests/unit/test_table.py\n"


@pytest.mark.parametrize("file", ["tfhybrid/layers.py", "./tfhybrid/layers.py"])
def test_of_a_file_are_the_tests_that_reach_it(clone: Path, capfd, file: str) -> None:
    main(clone, "--of", file, "unit")
    output, report = capfd.readouterr()
    assert output.splitlines() == ["unit\ttests/unit/test_all.py", "unit\ttests/unit/test_layer.py"]
    assert report == f"A change of {file} reaches 2 of 3 files of unit.\n"


def test_of_a_test_is_the_test(clone: Path, capfd) -> None:
    main(clone, "--of", str(clone / "tests/native/sum_test.cc"), "native", "unit")
    assert capfd.readouterr().out == "native\t^(.*/)?(SumTest)[./]\n"


def test_of_needs_a_file(clone: Path) -> None:
    with pytest.raises(SystemExit, match="is not a file of the repository"):
        main(clone, "--of", "nowhere.py", "unit")


def test_it_says_what_it_leaves_out(clone: Path, capfd) -> None:
    (clone / "tests/unit/test_table.py").write_text("")
    (clone / "notes.txt").touch()
    main(clone, "--since", "HEAD", "native", "parallel")
    assert capfd.readouterr().err.splitlines() == [
        "The changes reach no test of native, parallel.",
        "Also reached, but not asked for: 1 of 3 files of unit",
        "No test reaches: notes.txt",
    ]


def test_without_a_change_nothing_is_run(clone: Path, capfd) -> None:
    main(clone, "--since", "HEAD", "unit")
    assert capfd.readouterr() == ("", "Nothing differs from HEAD.\n")


def test_a_native_test_is_given_to_ctest_by_its_suite(clone: Path, capfd) -> None:
    (clone / "tests/native/sum_test.cc").write_text("TEST(SumTest, IsZero) {}")
    main(clone, "--since", "HEAD", "--asan")
    assert capfd.readouterr().out == "native\t^(.*/)?(SumTest)[./]\n"


def test_an_unknown_suite_or_revision_is_an_error(clone: Path, capfd) -> None:
    with pytest.raises(SystemExit, match="has no suite units"):
        main(clone, "--since", "HEAD", "units")
    with pytest.raises(SystemExit):
        main(clone, "--since", "no-such-revision", "unit")
    assert "no-such-revision" in capfd.readouterr().err
