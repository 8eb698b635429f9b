"""Builds custom_ops/ with CMake against the installed TensorFlow. Metadata is in pyproject.toml.

An incremental build into the source tree: python setup.py build_ext --inplace
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

# What a tree of the sources is installed by, first things first.
ORDER = (
    "In this order: `pip install -c requirements/versions.txt setuptools wheel tensorflow`; "
    "`scripts/horovod`, which compiles Horovod for that TensorFlow; "
    "`pip install --no-build-isolation .`"
)

try:
    from setuptools import Extension, setup
    from setuptools.command.build_ext import build_ext
    from setuptools.command.build_py import build_py
except ModuleNotFoundError:  # new environments of Python 3.12 and later lack it
    sys.exit(f"tfhybrid is built by setuptools, which is missing. {ORDER}")

ROOT = Path(__file__).resolve().parent
# What `tfhybrid new` writes. A wheel has a copy; an editable install reads it here.
PROJECT = ROOT / "examples" / "project"
PROJECT_IN_WHEEL = Path("tfhybrid", "cli", "project")
# What running the project here leaves behind.
LEFT_BY_RUNS = shutil.ignore_patterns("output", "*.parquet", "*.jsonl", "__pycache__")
LIBRARIES = ("libtfhybrid_core.so", "libtfhybrid_ops.so")
BUILD_INFO = "_build_info.json"
# Set by scripts/wheels: a folder with the core, an ops library for each TensorFlow, and BUILD_INFO.
COMPILED = os.environ.get("TFHYBRID_LIBRARIES")
ABI = "_GLIBCXX_USE_CXX11_ABI=1"

ASK_TENSORFLOW = """
import json, tensorflow as tf
print(json.dumps({
    "version": tf.__version__,
    "compile_flags": tf.sysconfig.get_compile_flags(),
    "include": tf.sysconfig.get_include(),
    "lib": tf.sysconfig.get_lib(),
    "link_flags": tf.sysconfig.get_link_flags(),
}))
"""


def require_wheel() -> None:
    """Exits with one sentence where wheels are wanted that setuptools cannot make."""
    wanted = {"bdist_wheel", "dist_info", "editable_wheel"} & {*sys.argv}
    modules = ("wheel", "setuptools.command.bdist_wheel")  # the second of setuptools 70.1 and newer
    if wanted and not any(importlib.util.find_spec(module) for module in modules):
        sys.exit(f"tfhybrid is installed as a wheel, and the package wheel is missing. {ORDER}")


def ask_tensorflow() -> dict:
    """Returns version and flags of the TensorFlow that the package will run with.

    pip's isolated build hides the environment by PYTHONPATH alone, so a child without it sees the
    TensorFlow that is installed there.
    """
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    outside = {name: value for name, value in quiet.items() if name != "PYTHONPATH"}
    for environment in (quiet, outside):
        answer = subprocess.run(
            [sys.executable, "-c", ASK_TENSORFLOW],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode == 0:
            return json.loads(answer.stdout.splitlines()[-1])
    sys.exit(
        "tfhybrid compiles its ops against the installed TensorFlow, and "
        f"`{sys.executable} -c 'import tensorflow'` failed: "
        f"{(answer.stderr.strip().splitlines() or ['no message'])[-1]}. "
        f"{ORDER}"
    )


def require_tools() -> None:
    """Exits with one sentence where a build tool is missing."""
    missing = [tool for tool in ("cmake", "make", "g++") if shutil.which(tool) is None]
    if missing:
        sys.exit(
            f"tfhybrid needs {', '.join(missing)} to compile its ops; "
            f"on Debian: apt-get install {' '.join(missing)}"
        )


def require_abi(version: str, definitions: list[str]) -> None:
    """Exits with one sentence where TensorFlow has not the C++11 ABI, as custom_ops/ has."""
    if ABI not in definitions:
        sys.exit(
            f"tfhybrid wants a TensorFlow compiled with {ABI}. Received: {version}, {definitions}"
        )


def framework_library(tensorflow: dict) -> str:
    """Returns the path that TensorFlow's link flag `-l:libtensorflow_framework.so.N` means."""
    name = next(flag[3:] for flag in tensorflow["link_flags"] if flag.startswith("-l:"))
    return os.path.join(tensorflow["lib"], name)


class BuildNative(build_ext):
    """Runs CMake; leaves both libraries and what they were built for in tfhybrid/ops/."""

    def run(self) -> None:
        """Configures and builds; a second run compiles only what changed."""
        if COMPILED:
            shutil.copytree(COMPILED, self.output_directory(), dirs_exist_ok=True)
            return
        require_tools()
        tensorflow = ask_tensorflow()
        definitions = [f[2:] for f in tensorflow["compile_flags"] if f.startswith("-D")]
        require_abi(tensorflow["version"], definitions)
        output = self.output_directory()
        output.mkdir(parents=True, exist_ok=True)
        # One for all: a wheel is made of what is compiled already, and links it anew.
        build = ROOT / "build" / "ops"
        subprocess.check_call(
            [
                *("cmake", "-S", ROOT / "custom_ops", "-B", build, "-Wno-dev"),
                f"-DTFHYBRID_OUTPUT_DIR={output}",
                f"-DTFHYBRID_TF_INCLUDE_DIR={tensorflow['include']}",
                f"-DTFHYBRID_TF_LIBRARY={framework_library(tensorflow)}",
                f"-DTFHYBRID_TF_DEFINITIONS={';'.join(definitions)}",
            ]
        )
        jobs = self.parallel or len(os.sched_getaffinity(0))
        subprocess.check_call(["cmake", "--build", build, "--parallel", str(jobs)])
        record = {"tensorflow": tensorflow["version"], "definitions": sorted(definitions)}
        (output / BUILD_INFO).write_text(json.dumps(record, indent=2) + "\n")

    def output_directory(self) -> Path:
        """The package folder in the source tree (editable installs) or in the wheel being made."""
        return (ROOT if self.inplace else Path(self.build_lib).resolve()) / "tfhybrid" / "ops"

    def get_outputs(self) -> list[str]:
        """The files that a wheel takes along."""
        names = os.listdir(COMPILED) if COMPILED else (*LIBRARIES, BUILD_INFO)
        return [str(self.output_directory() / name) for name in names]

    def get_output_mapping(self) -> dict[str, str]:
        """Nothing is copied: in-place builds write where they belong."""
        return {}

    def get_source_files(self) -> list[str]:
        """None: MANIFEST.in names the native sources."""
        return []


class BuildPython(build_py):
    """Copies the project of `tfhybrid new` into the package, besides the modules.

    Its files exist once, in examples/. In tfhybrid/ its scripts would be modules of the package,
    and a wheel cannot hold a symbolic link.
    """

    def run(self) -> None:
        """Copies modules and project; an editable install needs no copy of either."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, PROJECT_IN_WHEEL)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(PROJECT, target, ignore=LEFT_BY_RUNS)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """The modules, and the files of the project."""
        target = Path(self.build_lib, PROJECT_IN_WHEEL)
        copied = [str(each) for each in target.rglob("*") if each.is_file()]
        return [*super().get_outputs(include_bytecode), *copied]


# The extension is only a sign that the wheel holds native code.
require_wheel()
setup(
    ext_modules=[Extension("tfhybrid.ops._native", [])],
    cmdclass={"build_ext": BuildNative, "build_py": BuildPython},
)
