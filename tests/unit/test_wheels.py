"""Wheels that need no compiler: their releases, the Horovod in them, and what setup.py packs."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import warnings
import zipfile
from pathlib import Path
from types import ModuleType

import horovod
import pytest
import tensorflow as tf
from packaging.requirements import Requirement
from packaging.version import Version

from tests.support.environment import ROOT, answer
from tfhybrid import __version__, _horovod

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def load(file: Path) -> ModuleType:
    """Runs a file as a module of its own."""
    specification = importlib.util.spec_from_file_location("loaded", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_there_is_a_library_for_each_release_that_the_metadata_allow() -> None:
    (allowed,) = (
        requirement.specifier
        for requirement in map(Requirement, PROJECT["dependencies"])
        if requirement.name == "tensorflow"
    )
    built = [Version(each) for each in answer('echo "${BUILT_RELEASES[@]}"').split()]
    assert built == sorted(built)
    assert all(each in allowed for each in built)
    minors = [
        minor
        for minor in range(50)
        if any(Version(f"2.{minor}.{patch}") in allowed for patch in range(9))
    ]
    assert [each.minor for each in built] == minors


def test_what_they_are_compiled_with_has_hashes() -> None:
    listed = answer("printf 'tensorflow-cpu==%s\n' \"${BUILT_RELEASES[@]}\" | with_hashes")
    tools = answer("versions_for Wheels | with_hashes")
    assert all("--hash=sha256:" in line for line in [*listed.splitlines(), *tools.splitlines()])
    assert tools.startswith("auditwheel==")


def test_all_places_name_the_same_horovod() -> None:
    assert PROJECT["optional-dependencies"]["horovod"] == [f"horovod=={_horovod.VERSION}"]
    pinned = re.search(r"^horovod==(.+)$", (ROOT / "requirements/versions.txt").read_text(), re.M)
    script = re.search(r"^LOCAL=(.+)$", (ROOT / "scripts/horovod").read_text(), re.M)
    assert pinned is not None
    assert script is not None
    assert f"{pinned[1]}+{script[1]}" == _horovod.VERSION


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """What is changed of Horovod's sources for a wheel."""
    util = Path(horovod.__file__).parent / "common" / "util.py"
    for name, text in {
        "horovod/common/util.py": util.read_text(),
        "setup.py": "setup(name='horovod',\n      packages=find_packages(),\n)",
        "third_party/lbfgs/LICENSE.md": "MIT",
        "third_party/HTTPRequest/README.md": "BSD",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_horovod_takes_the_library_of_the_installed_tensorflow(sources: Path) -> None:
    changes = load(ROOT / "scripts" / "horovod_for_wheel.py")
    changes.take_library_of_release(sources, ["2.13.1", "2.14.0"])
    util = load(sources / "horovod" / "common" / "util.py")
    library = f"mpi_lib-tensorflow-{'.'.join(tf.__version__.split('.')[:2])}.so"
    package = str(sources / "horovod" / "tensorflow" / "__init__.py")
    with pytest.raises(ImportError, match=r"for TensorFlow 2\.13, 2\.14 only") as error:
        util.check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", package, "mpi_lib")
    assert library in str(error.value)
    (sources / "horovod" / "tensorflow").mkdir()
    (sources / "horovod" / "tensorflow" / library).touch()
    util.check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", package, "mpi_lib")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        util.check_installed_version("tensorflow", tf.__version__)
    assert "'horovod.tensorflow': ['mpi_lib-*.so']" in (sources / "setup.py").read_text()


def test_other_sources_of_horovod_are_refused(sources: Path) -> None:
    changes = load(ROOT / "scripts" / "horovod_for_wheel.py")
    changes.take_library_of_release(sources, ["2.14.0"])
    with pytest.raises(AssertionError, match="0 times, not once"):
        changes.take_library_of_release(sources, ["2.14.0"])


def test_the_wheel_of_horovod_has_the_licences_of_what_it_contains(sources: Path) -> None:
    tensorflow = sources / "tensorflow"
    tensorflow.mkdir()
    line = "-" * 80
    (tensorflow / "THIRD_PARTY_NOTICES.txt").write_text(
        f"== Curl\nX\n{line}\n\n{line}\n== Eigen\n\nMPL\n{line}\n\n{line}\n"
        f"== Flatbuffers\n\nApache\n{line}\n\n{line}\n== Gast\nY\n"
    )
    load(ROOT / "scripts" / "horovod_for_wheel.py").add_licences(sources, tensorflow)
    texts = {file.name: file.read_text() for file in sources.glob("LICENSE-*")}
    assert {*texts} == {
        f"LICENSE-{name}"
        for name in ("HTTPRequest", "boost", "eigen", "flatbuffers", "gloo", "lbfgs")
    }
    assert texts["LICENSE-eigen"] == "== Eigen\n\nMPL\n"
    assert texts["LICENSE-flatbuffers"] == "== Flatbuffers\n\nApache\n"
    assert "Boost Software License" in texts["LICENSE-boost"]
    assert "For Gloo software" in texts["LICENSE-gloo"]


def test_setup_packs_what_was_compiled_elsewhere(tmp_path: Path) -> None:
    """And compiles nothing, although that is what it does without the variable."""
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    names = {"libtfhybrid_core.so", "libtfhybrid_ops-2.14.so", "_build_info.json"}
    for name in names:
        (compiled / name).write_text(name)
    built = tmp_path / "built"
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(built)],
        env={**os.environ, "TFHYBRID_LIBRARIES": str(compiled), "PATH": ""},
        cwd=ROOT,
        check=True,
    )
    packed = {file.name: file.read_text() for file in (built / "tfhybrid" / "ops").iterdir()}
    assert packed == {name: name for name in names}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout, with wheels of its sources for TensorFlow 2.20 in dist/."""
    for name in ("scripts", "custom_ops", "dist", "tfhybrid"):
        (tmp_path / name).mkdir()
    install = (ROOT / "scripts" / "install").read_text()
    test = 'RELEASE=$1 PYTHON=python\nif wheels_fit; then unpack_ops_of_wheel; else echo "none"; fi'
    (tmp_path / "scripts" / "install").write_text(install.replace('\nmain "$@"\n', f"\n{test}\n"))
    for name in ("scripts/environment", "tfhybrid/_version.py", "tfhybrid/_horovod.py"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "custom_ops" / "lookup.cc").write_text("int rows;")
    sources = subprocess.check_output(
        ["bash", "-c", "source scripts/environment && key_of_sources ."], cwd=tmp_path, text=True
    )
    record = {"sources": sources.strip(), "libraries": {"2.20": {}}}
    with zipfile.ZipFile(tmp_path / "dist" / f"tfhybrid-{__version__}-py3.whl", "w") as wheel:
        wheel.writestr("tfhybrid/ops/_build_info.json", json.dumps(record))
        wheel.writestr("tfhybrid/ops/libtfhybrid_ops-2.20.so", "ops")
        wheel.writestr("tfhybrid/ops/_abi.py", "not of the checkout")
    (tmp_path / "dist" / f"horovod-{_horovod.VERSION}-py3.whl").touch()
    return tmp_path


def taken(checkout: Path, release: str = "2.20.0") -> set[str]:
    """Returns the names of the files that scripts/install takes from the wheel."""
    command = ["bash", "scripts/install", release]
    answered = subprocess.check_output(command, cwd=checkout, text=True)
    if answered:
        assert answered == "none\n"
        return set()
    return {file.name for file in (checkout / "build" / "libraries").iterdir()}


def test_a_checkout_takes_the_libraries_of_wheels_of_its_sources(checkout: Path) -> None:
    assert taken(checkout) == {"_build_info.json", "libtfhybrid_ops-2.20.so"}
    assert taken(checkout, "2.21.0") == set()


@pytest.mark.parametrize("other", ["sources", "horovod", "version"])
def test_a_checkout_compiles_where_wheels_do_not_fit(checkout: Path, other: str) -> None:
    if other == "sources":
        (checkout / "custom_ops" / "lookup.cc").write_text("long rows;")
    elif other == "horovod":
        wheel = checkout / "dist" / f"horovod-{_horovod.VERSION}-py3.whl"
        wheel.rename(checkout / "dist" / "horovod-0.28.1-py3.whl")
    else:
        (checkout / "tfhybrid" / "_version.py").write_text('__version__ = "9.9.9"\n')
    assert taken(checkout) == set()
