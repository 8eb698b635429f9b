"""A library compiled for another TensorFlow is caught before it is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf

from tfhybrid.ops import _abi


def test_the_built_package_fits_the_installed_tensorflow():
    _abi.check_build()


def test_another_release_is_refused_with_the_way_to_rebuild(tmp_path: Path):
    record = json.loads((Path(_abi.__file__).parent / "_build_info.json").read_text())
    record["tensorflow"] = "2.14.0"
    (tmp_path / "_build_info.json").write_text(json.dumps(record))

    with pytest.raises(ImportError, match=r"compiled for TensorFlow 2\.14\.0") as error:
        _abi.check_build(tmp_path)
    assert f"Received: TensorFlow {tf.__version__}" in str(error.value)
    assert "pip install --force-reinstall --no-deps ." in str(error.value)


def test_a_package_without_libraries_says_so(tmp_path: Path):
    with pytest.raises(ImportError, match="not built"):
        _abi.check_build(tmp_path)
