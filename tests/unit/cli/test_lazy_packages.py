"""Packages import what is heavy when it is first used; nobody who uses them can tell."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ["tfhybrid", "tfhybrid.checkpoint", "tfhybrid.data", "tfhybrid.store", "tfhybrid.stream"]
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_is_there(name):
    package = importlib.import_module(name)
    assert sorted(package.__all__, key=str.lower) == sorted(set(package.__all__), key=str.lower)
    for public in package.__all__:
        assert getattr(package, public) is getattr(package, public)
        assert public in dir(package)


@pytest.mark.parametrize("name", PACKAGES)
def test_other_names_are_not_there(name):
    package = importlib.import_module(name)
    assert not hasattr(package, "no_such_name")
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'no_such_name'"):
        _ = package.no_such_name
    with pytest.raises(ImportError):
        exec(f"from {name} import no_such_name")


# In a process that has imported nothing of tfhybrid yet.
SCRIPT = """
import os, sys
import tfhybrid

assert not {"tensorflow", "horovod"} & {*sys.modules}
assert os.environ["HOROVOD_DISABLE_GROUP_FUSION"] == "1"  # Horovod may be started before init()

# Modules that importing everything used to bring along.
tfhybrid.errors.TfhybridError, tfhybrid.store.RowBlock, tfhybrid.distributed.rank
tfhybrid.checkpoint.dense.tables_of, tfhybrid.config.TableConfig, tfhybrid.ops

tfhybrid.init()
assert (tfhybrid.rank(), tfhybrid.size()) == (0, 1)
"""


def test_importing_tfhybrid_is_light_and_enough():
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr


def test_without_horovod_its_wheel_and_its_script_are_named():
    script = "import sys; sys.modules['horovod'] = None; import tfhybrid; tfhybrid.init()"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "which is not installed: pip install 'tfhybrid[horovod]'" in run.stderr
    assert "scripts/horovod in tfhybrid's source tree" in run.stderr
    assert run.stderr.count("Traceback") == 1
