"""A library compiled for another TensorFlow is caught before it is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tfhybrid.ops import _abi

MINOR = ".".join(tf.__version__.split(".")[:2])


def test_the_built_package_fits_the_installed_tensorflow():
    assert _abi.find_library().exists()
    (release,) = _abi.built_releases()
    assert release == tf.__version__


def record(**changes: Any) -> dict[str, Any]:
    """Returns what setup.py writes for the installed TensorFlow, with changes."""
    flags = tf.sysconfig.get_compile_flags()
    definitions = sorted(flag[2:] for flag in flags if flag.startswith("-D"))
    return {"tensorflow": tf.__version__, "definitions": definitions, **changes}


def write(folder: Path, fields: dict[str, Any]) -> None:
    (folder / "_build_info.json").write_text(json.dumps(fields))


def test_another_release_is_refused_with_the_way_to_rebuild(tmp_path: Path):
    write(tmp_path, record(tensorflow="2.14.0"))
    with pytest.raises(ImportError, match=r"compiled for TensorFlow 2\.14\.0") as error:
        _abi.find_library(tmp_path)
    assert f"Received: TensorFlow {tf.__version__}" in str(error.value)
    assert "pip install --force-reinstall --no-deps ." in str(error.value)


def test_a_package_without_libraries_says_so(tmp_path: Path):
    assert _abi.built_releases(tmp_path) == []
    with pytest.raises(ImportError, match="not built"):
        _abi.find_library(tmp_path)


def test_a_wheel_has_a_library_for_each_minor_release(tmp_path: Path):
    """Also for a patch release that it was not compiled for."""
    write(tmp_path, {"libraries": {"2.14": record(), MINOR: record(tensorflow=f"{MINOR}.99")}})
    assert _abi.find_library(tmp_path) == tmp_path / f"libtfhybrid_ops-{MINOR}.so"
    assert _abi.built_releases(tmp_path) == ["2.14.*", f"{MINOR}.*"]


def test_a_wheel_refuses_an_unknown_release_and_lists_those_it_has(tmp_path: Path):
    write(tmp_path, {"libraries": {"2.13": record(), "2.14": record()}})
    with pytest.raises(ImportError, match=r"native ops for TensorFlow 2\.13, 2\.14 only") as error:
        _abi.find_library(tmp_path)
    assert f"Received: TensorFlow {tf.__version__}" in str(error.value)


def test_a_wheel_refuses_a_tensorflow_with_other_flags(tmp_path: Path):
    other = ["EIGEN_MAX_ALIGN_BYTES=16", "_GLIBCXX_USE_CXX11_ABI=0"]
    write(tmp_path, {"libraries": {MINOR: record(definitions=other)}})
    with pytest.raises(ImportError, match=r"\(EIGEN_MAX_ALIGN_BYTES=16 _GLIBCXX"):
        _abi.find_library(tmp_path)
