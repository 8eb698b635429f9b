"""What a public repository has beside its code: workflow, forms, citation, hooks, dev container.

Nothing here runs a machine of the host that reads these files. Forms are held against what that
host requires; what they call must exist in this repository.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tfhybrid._version import __version__

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOW = yaml.safe_load((GITHUB / "workflows" / "tests.yml").read_text())
FORMS = [GITHUB / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "idea.yml")]
SCRIPTS = [
    step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "run" in step
]


def array(script: str, name: str) -> list[str]:
    """Returns the words of an array that a script of bash gives a name to."""
    text = (ROOT / "scripts" / script).read_text()
    return re.search(rf"^{name}=\(([^)]*)\)", text, re.MULTILINE)[1].split()


def test_the_workflow_calls_scripts_that_exist() -> None:
    called = re.findall(r"(?:scripts|\.ci)/\w+", "\n".join(SCRIPTS))
    assert {*called} == {".ci/run", "scripts/versions"}
    assert [each for each in called if not os.access(ROOT / each, os.X_OK)] == []


def test_the_workflow_has_every_row_of_versions() -> None:
    jobs = WORKFLOW["jobs"]
    assert jobs["versions"]["strategy"]["matrix"]["case"] == array("versions", "CASES")
    assert "scripts/versions sdist-next" in SCRIPTS
    assert jobs["next"]["continue-on-error"] is True


def test_each_release_that_has_a_library_in_the_wheels_has_a_row() -> None:
    rows = {f"sdist-{release}" for release in array("environment", "BUILT_RELEASES")}
    assert rows <= {*array("versions", "CASES")}


def test_the_workflow_starts_by_itself_and_may_only_read() -> None:
    # "on" is a word for true in YAML 1.1, which PyYAML reads.
    starts = WORKFLOW[True]
    assert {*starts} == {"pull_request", "push", "schedule", "workflow_dispatch"}
    assert re.fullmatch(r"\d+ \d+ \* \* \d", starts["schedule"][0]["cron"])
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 360 for job in WORKFLOW["jobs"].values())


def test_an_unknown_row_of_versions_is_refused() -> None:
    """`sdist-next` is named by the workflow alone, so that nobody who runs all rows meets it."""
    run = subprocess.run(
        [ROOT / "scripts" / "versions", "sdist-1.0"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert "sdist-next" in run.stderr
    assert "sdist-next" not in array("versions", "CASES")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_what_the_host_requires(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= {*form}
    fields = [each for each in form["body"] if each["type"] != "markdown"]
    assert len({each["id"] for each in fields}) == len(fields) > 0
    assert all(each["type"] in ("input", "textarea", "dropdown") for each in fields)
    assert all(each["attributes"]["label"] for each in fields)
    assert any(each.get("validations", {}).get("required") for each in fields)


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= {*citation}
    assert citation["type"] == "software"
    assert all("name" in author for author in citation["authors"])
    assert citation["version"] == __version__
    heading = f"## [{__version__}] - {citation['date-released']}"
    assert heading in (ROOT / "CHANGELOG.md").read_text().splitlines()


def test_hooks_are_tools_of_the_projects_own_environment() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [each["repo"] for each in hooks] == ["local"]
    pins = (ROOT / "requirements" / "versions.txt").read_text()
    for hook in hooks[0]["hooks"]:
        assert hook["language"] == "system"
        tool = re.match(r"\.venv/bin/([\w-]+)", hook["entry"])[1]
        assert f"\n{tool}==" in pins


def test_the_dev_container_has_what_scripts_install_needs() -> None:
    folder = ROOT / ".devcontainer"
    container: dict[str, Any] = json.loads((folder / "devcontainer.json").read_text())
    dockerfile = (folder / container["build"]["dockerfile"]).read_text()
    assert {*array("install", "DEBIAN_PACKAGES"), "gcc", "g++", "make", "cmake"} <= {
        *dockerfile.split()
    }
    assert os.access(ROOT / container["postCreateCommand"], os.X_OK)


@pytest.mark.parametrize(
    "name", ["SECURITY.md", "CODE_OF_CONDUCT.md", ".github/PULL_REQUEST_TEMPLATE.md"]
)
def test_links_of_a_page_beside_the_documentation_lead_somewhere(name: str) -> None:
    page = ROOT / name
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    paths = re.findall(r"`((?:docs|scripts|requirements|tests)/[\w./-]+)`", text)
    folder = ROOT if name.startswith(".github") else page.parent
    assert [each for each in [*links, *paths] if not (folder / each).exists()] == []
