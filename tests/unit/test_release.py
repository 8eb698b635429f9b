"""One version, which the newest release note is about, and what a release of it consists of."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tfhybrid._version import __version__

ROOT = Path(__file__).resolve().parents[2]


def test_newest_changelog_entry_is_this_version():
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == __version__


def test_installed_metadata_is_this_version():
    assert metadata.version("tfhybrid") == __version__


def test_licence_is_apache_2():
    first_lines = (ROOT / "LICENSE").read_text().split()[:4]
    assert first_lines == ["Apache", "License", "Version", "2.0,"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of one commit, with what `scripts/release` looks at first."""
    for name in ("release", "environment"):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    (tmp_path / "tfhybrid").mkdir()
    (tmp_path / "tfhybrid" / "_version.py").write_text('__version__ = "7.8.9"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [7.8.9] - 2031-01-02\n\nNewest.\n\n### Added\n\n- A thing.\n\n"
        "## [7.8.8] - 2030-01-02\n\nOldest.\n"
    )
    (tmp_path / "CITATION.cff").write_text("version: 7.8.9\ndate-released: 2031-01-02\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    name = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "commit", "--quiet", "--all", "--message", "all: change something")


def release(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [folder / "scripts" / "release", *arguments], capture_output=True, text=True, check=False
    )


def test_the_notes_of_a_release_are_its_part_of_the_changelog(checkout: Path) -> None:
    assert release(checkout, "--notes").stdout == "Newest.\n\n### Added\n\n- A thing.\n\n"


def test_a_changed_file_is_not_released(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("other")
    refused = release(checkout, "--dry-run")
    assert refused.returncode == 1
    assert "A release is a commit, and the working tree differs from it" in refused.stderr


def test_a_version_is_released_once(checkout: Path) -> None:
    git(checkout, "tag", "v7.8.9")
    refused = release(checkout)
    assert refused.returncode == 1
    assert "v7.8.9 is released already. Raise the version in" in refused.stderr


@pytest.mark.parametrize("heading", ["## [7.8.9] - unreleased", "## [7.8.8] - 2031-01-02"])
def test_a_release_has_its_heading_with_a_date(checkout: Path, heading: str) -> None:
    (checkout / "CHANGELOG.md").write_text(f"{heading}\n")
    commit(checkout)
    refused = release(checkout)
    assert refused.returncode == 1
    assert 'CHANGELOG.md has no heading "## [7.8.9] - YEAR-MONTH-DAY"' in refused.stderr


@pytest.mark.parametrize("line", ["version: 7.8.8", "date-released: 2031-01-03"])
def test_a_release_is_cited_by_its_version_and_date(checkout: Path, line: str) -> None:
    citation = checkout / "CITATION.cff"
    name = line.split(":")[0]
    citation.write_text(re.sub(f"^{name}:.*$", line, citation.read_text(), flags=re.MULTILINE))
    commit(checkout)
    refused = release(checkout)
    assert refused.returncode == 1
    assert 'the lines "version: 7.8.9" and "date-released: 2031-01-02"' in refused.stderr


def test_the_bill_of_materials_has_what_training_needs(tmp_path: Path) -> None:
    """Of all packages of this environment, in the form in which cyclonedx-py lists them."""
    names = {each.metadata["Name"]: each.version for each in metadata.distributions()}
    components = [
        {
            "name": name,
            "version": version,
            "bom-ref": f"{name}=={version}",
            "externalReferences": [{"url": "file:///wheels/x.whl"}, {"url": "https://x.org"}],
        }
        for name, version in names.items()
    ]
    references = [each["bom-ref"] for each in components]
    environment = {
        "metadata": {"component": {"name": "tfhybrid", "bom-ref": "root"}},
        "components": components,
        "dependencies": [{"ref": each, "dependsOn": references} for each in ["root", *references]],
    }
    (tmp_path / "environment.json").write_text(json.dumps(environment))
    script = ROOT / "scripts" / "bill_of_materials.py"
    command = [sys.executable, script, tmp_path / "environment.json", "7.8.9"]
    bill = json.loads(subprocess.check_output(command, text=True))
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/tfhybrid@7.8.9"
    listed = {each["name"].lower() for each in bill["components"]}
    assert {"tensorflow", "keras", "horovod", "numpy", "pydantic", "cloudpickle"} <= listed
    assert not {"pytest", "ruff", "matplotlib", "tfhybrid"} & listed
    assert "file:" not in json.dumps(bill)
    known = {"root", *(each["bom-ref"] for each in bill["components"])}
    assert {each["ref"] for each in bill["dependencies"]} == known
    assert all({*each["dependsOn"]} <= known for each in bill["dependencies"])


def test_the_source_distribution_compiles_horovod_and_itself(tmp_path: Path) -> None:
    """The files that docs/releases.md names once it is unpacked."""
    command = [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    sources = (tmp_path / "tfhybrid.egg-info" / "SOURCES.txt").read_text().splitlines()
    pins = {"requirements/versions.txt", "requirements/hashes.txt"}
    assert {*pins, "scripts/horovod", "setup.py", "custom_ops/CMakeLists.txt"} <= {*sources}
