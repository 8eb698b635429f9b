"""What scripts install for a release of TensorFlow, and what they refuse to build."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.environment import ROOT, answer

BIN = Path(sys.executable).parent
IN_ENVIRONMENT = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}


def packages_for(release: str) -> set[str]:
    return {*answer(f"packages_for {release}").split()}


def pins_for(release: str) -> dict[str, str]:
    """Returns the versions of requirements/versions.txt by package."""
    lines = answer(f"pins_for {release}").splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


DEFAULT = "2.20.0"
PINNED = (DEFAULT, "2.16.2")
MINORS = [11, 12, 13]  # the x of each Python 3.x


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    return pins_for("2.16.2")


@pytest.mark.parametrize("minor", MINORS)
def test_each_python_has_the_default_and_pip_reads_the_same_pins(minor: int) -> None:
    assert answer("default_release").split() == [DEFAULT]
    by_pip: dict[str, str] = {}
    for line in (ROOT / "requirements" / "versions.txt").read_text().splitlines():
        if "==" not in line or line.startswith("#"):
            continue
        requirement = Requirement(line)
        python = {"python_version": f"3.{minor}"}
        if requirement.marker is None or requirement.marker.evaluate(python):
            assert by_pip.setdefault(requirement.name, str(requirement.specifier)) == str(
                requirement.specifier
            )
    pins = pins_for(DEFAULT)
    assert by_pip == {name: f"=={version}" for name, version in pins.items()}


@pytest.mark.parametrize("release", PINNED)
def test_a_pinned_release_is_installed_as_it_is_pinned(release: str) -> None:
    pins = pins_for(release)
    drawing = {
        "matplotlib",
        "contourpy",
        "cycler",
        "fonttools",
        "kiwisolver",
        "pyparsing",
    }
    placing = {"ray", "filelock", "msgpack"}
    frames = {"pandas", "pytz"}
    tools = answer("versions_for Releasing; versions_for Wheels")
    releasing = {*re.findall(r"^(.+)==", tools, re.MULTILINE)}
    pinned = {f"{name}=={version}" for name, version in pins.items()}
    left_out = {
        f"{name}=={pins[name]}" for name in drawing | placing | frames | releasing | {"horovod"}
    }
    assert packages_for(release) == pinned - left_out


def test_pip_chooses_what_goes_with_another_release(pins) -> None:
    packages = packages_for("2.18.1")
    assert {"tensorflow==2.18.1", "tf_keras", f"pyarrow=={pins['pyarrow']}"} <= packages
    chosen = {"tensorflow", "tf_keras", "keras", "numpy", "protobuf", "tensorflow-io", "horovod"}
    assert not {f"{name}=={pins[name]}" for name in chosen} & packages


def test_horovod_is_not_built_for_gpus_where_it_could_not_be_loaded(tmp_path) -> None:
    """A TensorFlow without XLA's headers, and without the function that Horovod's kernels call."""
    fake = tmp_path / "tensorflow"
    fake.mkdir()
    (fake / "__init__.py").touch()
    (fake / "libtensorflow_framework.so.2").write_text("no symbols")
    run = subprocess.run(
        [ROOT / "scripts" / "horovod"],
        env={**IN_ENVIRONMENT, "HOROVOD_GPU_OPERATIONS": "NCCL", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert "no xla_builder.h of XLA and no AsGpuStreamValue()" in run.stderr


def script_of_horovod(folder: Path, *commands: str) -> Path:
    """Returns the path of a copy of scripts/horovod that runs these commands instead of its own."""
    script = folder / "scripts" / "horovod"
    script.parent.mkdir()
    text = (ROOT / "scripts" / "horovod").read_text()
    script.write_text(text.replace('\nmain "$@"\n', "\n".join(("", *commands, ""))))
    (folder / "requirements").symlink_to(ROOT / "requirements")
    return script


def test_another_cuda_is_another_build_of_horovod(tmp_path: Path) -> None:
    script = script_of_horovod(tmp_path, "key_of_build")
    environment = IN_ENVIRONMENT | {"HOROVOD_GPU_OPERATIONS": "NCCL"}
    keys = [
        subprocess.check_output(["bash", script], env=environment | {"HOROVOD_CUDA_HOME": home})
        for home in ("/cuda-12.4", "/cuda-12.5", "/cuda-12.4")
    ]
    assert keys[0] == keys[2] != keys[1]


# The lines of Horovod's sources that scripts/horovod changes.
XLA = 'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")'
QUESTION = """\
    for ext_base_name in EXTENSIONS:
        built_fn = lambda ext: ext.{}_built()
        result = _check_extension_lambda(
            ext_base_name, built_fn, 'built with {}', verbose)
        if result is not None:
            return result
    return None
"""
SOURCES = {
    "horovod/__init__.py": "'{version}'",
    "horovod/common/util.py": QUESTION.format("mpi", "MPI") + QUESTION.format("gloo", "Gloo"),
    "CMakeLists.txt": 'add_subdirectory(third_party/gloo) "-O2" "-O3" CMAKE_CXX',
    "horovod/common/common.h": "#include <memory>",
    "third_party/flatbuffers/include/flatbuffers/stl_emulation.h": "const size_type count_;",
    "horovod/tensorflow/CMakeLists.txt": (
        f'{XLA}\nset_target_properties(${{TF_TARGET_LIB}} PROPERTIES PREFIX "")\n'
    ),
}


@pytest.mark.parametrize("operations", ["", "NCCL"])
def test_horovods_part_for_xla_is_compiled_alone_and_only_for_gpus(pins, tmp_path, operations):
    for name, text in SOURCES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("{version}", pins["horovod"]))
    script = script_of_horovod(tmp_path, f"change_sources {tmp_path}")
    environment = IN_ENVIRONMENT | {"HOROVOD_GPU_OPERATIONS": operations}
    subprocess.check_call(["bash", script], env=environment)
    changed = (tmp_path / "horovod/tensorflow/CMakeLists.txt").read_text()
    assert "UNITY_BUILD ON" in changed
    assert (XLA in changed) == bool(operations)
    assert ("SKIP_UNITY_BUILD_INCLUSION ON" in changed) == bool(operations)
    launcher = (tmp_path / "horovod/common/util.py").read_text()
    assert launcher == "    return False\n    return True\n"


def test_horovod_finds_nccl_beside_it(tmp_path: Path) -> None:
    """A library that is linked as Horovod is, in an environment that is moved afterwards."""
    site = tmp_path / "site"
    nccl = site / "nvidia" / "nccl" / "lib"
    binding = site / "horovod" / "tensorflow"
    for folder in (nccl, binding):
        folder.mkdir(parents=True)
    compiler = ["gcc", "-x", "c", "-", "-shared", "-fPIC", "-o"]
    soname = "-Wl,-soname,libnccl.so.2"
    code = "int ncclVersion(void) { return 2; }"
    subprocess.run([*compiler, nccl / "libnccl.so.2", soname], input=code, text=True, check=True)
    script = script_of_horovod(
        tmp_path,
        f"python() {{ echo {site}; }}",
        "take_nccl_of_environment",
        "[[ $HOROVOD_NCCL_LINK == SHARED ]]",
        'gcc -x c - -x none -shared -fPIC $LDFLAGS "-L$HOROVOD_NCCL_HOME/lib" -lnccl -o "$1"',
    )
    code = "int ncclVersion(void); int version(void) { return ncclVersion(); }"
    linked = ["bash", script, binding / "binding.so"]
    subprocess.run(linked, input=code, text=True, check=True)
    moved = site.rename(tmp_path / "moved") / "horovod" / "tensorflow" / "binding.so"
    assert ctypes.CDLL(str(moved)).version() == 2


class KeptFromPip:
    """The steps of scripts/horovod with a wheel in the cache, which pip is kept from installing.

    Args:
        folder: Folder of the script, of the cache and of the environment.
    """

    STUBS = """
key_of_build() { echo key; }
python() {
  case "$*" in
    *sys.prefix*) echo "$XDG_CACHE_HOME" ;;
    -m*) [[ $* == *"--quiet --no-deps"*horovod-x.whl ]] && echo >>"$XDG_CACHE_HOME/installs" ;;
    *) command python "$@" ;;
  esac
}
"""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._script = script_of_horovod(folder, self.STUBS, 'main "$@"')
        self.wheel = folder / "tfhybrid" / "wheels" / "key" / "horovod-x.whl"
        self.wheel.parent.mkdir(parents=True)
        self.wheel.touch()

    def run(self, *options: str, **variables: str) -> int:
        """Runs it; returns how often it has installed a wheel so far."""
        env = IN_ENVIRONMENT | {"XDG_CACHE_HOME": str(self._folder)} | variables
        env.pop("TF_CPP_MIN_LOG_LEVEL", None)
        command = ["bash", str(self._script), *options]
        run = subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=300
        )
        assert (run.returncode, run.stderr) == (0, "")
        version = pins_for(DEFAULT)["horovod"]
        assert run.stdout == f"scripts/horovod: Horovod {version} is installed\n"
        return len((self._folder / "installs").read_text())


def test_horovod_from_the_cache_is_installed_once_in_one_line(tmp_path: Path) -> None:
    script = KeptFromPip(tmp_path)
    assert script.run() == 1
    assert (tmp_path / ".horovod").read_text() == "key\n"
    assert script.run() == 1
    assert script.run("--wheel", str(script.wheel)) == 2
    assert script.run("--wheel", str(script.wheel)) == 2


def test_a_horovod_that_pip_has_replaced_is_installed_again(tmp_path: Path) -> None:
    script = KeptFromPip(tmp_path)
    assert script.run() == 1
    other = tmp_path / "other" / "horovod"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("__version__ = '0.28.1'\n")
    (other / "tensorflow.py").write_text("def gloo_built(): return True\n")
    assert script.run(PYTHONPATH=str(other.parent)) == 2
    assert script.run() == 2


@pytest.mark.parametrize("options", [[], ["--gloo"]])
def test_horovodrun_starts_ranks_without_tensorflow(options: list[str], tmp_path: Path) -> None:
    """Importing it takes seconds, and a fault in it is the ranks' to name."""
    (tmp_path / "tensorflow.py").write_text("raise AssertionError('imported')\n")
    run = subprocess.run(
        [BIN / "horovodrun", *options, "-np", "1", "echo", "started"],
        env=IN_ENVIRONMENT | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "started" in run.stdout


@pytest.mark.parametrize(
    ("missing", "wanted"),
    [("wheel", "the package wheel is missing"), ("tensorflow", "compiles its ops against")],
)
def test_a_bare_environment_is_told_what_comes_first(tmp_path, missing, wanted) -> None:
    """As pip runs the build, where setuptools alone is there; from Python 3.12 on, not even it."""
    if sys.version_info >= (3, 12):
        wanted = "built by setuptools, which is missing"
    venv = tmp_path / "bare"
    subprocess.check_call([sys.executable, "-m", "venv", venv])
    command = "bdist_wheel" if missing == "wheel" else "build_ext"
    run = subprocess.run(
        [venv / "bin" / "python", "setup.py", command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert wanted in run.stderr
    assert (
        "In this order: `pip install -c requirements/versions.txt setuptools wheel tensorflow`"
        in run.stderr
    )
    assert "`scripts/horovod`" in run.stderr


@pytest.mark.parametrize("release", PINNED)
def test_every_package_has_a_hash_and_only_such_are_installed(release: str) -> None:
    """All that scripts/install and the images bring along, and Horovod's sources."""
    hashed = {
        normalized(re.fullmatch(r"(\S+==\S+)(?: --hash=sha256:[0-9a-f]{64})+", line)[1])
        for line in (ROOT / "requirements" / "hashes.txt").read_text().splitlines()[1:]
    }
    pins = pins_for(release)
    assert {normalized(f"{name}=={version}") for name, version in pins.items()} <= hashed

    def with_hashes(packages: str) -> subprocess.CompletedProcess[str]:
        command = f"source scripts/environment && {packages} | with_hashes"
        return subprocess.run(
            ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
        )

    written = with_hashes(f"packages_for {release}")
    assert written.returncode == 0, written.stderr
    assert all("--hash=sha256:" in line for line in written.stdout.splitlines())
    unknown = with_hashes("echo left-pad==1.0")
    assert unknown.returncode == 1
    assert "requirements/hashes.txt has no left-pad==1.0: run scripts/hashes" in unknown.stderr


def test_a_package_with_wheels_for_each_python_has_the_hashes_of_all() -> None:
    """One hash is that of a wheel for every Python, or of a source distribution."""
    hashes = {
        normalized(line.split()[0]): line.count("--hash=")
        for line in (ROOT / "requirements" / "hashes.txt").read_text().splitlines()[1:]
    }
    counts = {
        name: hashes[normalized(f"{name}=={version}")]
        for name, version in pins_for(DEFAULT).items()
    }
    assert counts.pop("pyzmq") == 2  # for Python 3.11, and for all newer ones
    assert {name: count for name, count in counts.items() if count not in (1, len(MINORS))} == {}


def test_pip_refuses_a_package_of_another_hash(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip"]
    built = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", tmp_path]
    subprocess.run([*pip, "wheel", "--quiet", *built, _tiny_package(tmp_path / "tiny")], check=True)
    packages = tmp_path / "packages.txt"
    packages.write_text(f"tiny==1.0 --hash=sha256:{'0' * 64}\n")
    found = ["--no-index", "--find-links", tmp_path, "--dest", tmp_path / "got"]
    refused = subprocess.run(
        [*pip, "download", *found, "--require-hashes", "-r", packages],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "DO NOT MATCH THE HASHES" in refused.stderr


def normalized(name: str) -> str:
    """Returns a package's name, with its version or without, as PEP 503 has it."""
    return re.sub(r"[-_]+", "-", name).lower()


def _tiny_package(folder: Path) -> Path:
    folder.mkdir()
    project = "[project]\nname = 'tiny'\nversion = '1.0'\n[tool.setuptools]\npy-modules = []\n"
    (folder / "pyproject.toml").write_text(project)
    return folder


@pytest.fixture(scope="module")
def project() -> set[str]:
    """The files of the project that `tfhybrid new` writes, as paths from the root."""
    folder = ROOT / "examples" / "project"
    return {
        str(each.relative_to(ROOT))
        for each in folder.rglob("*")
        if each.is_file()
        and each.suffix not in (".parquet", ".jsonl", ".pyc")
        and folder / "output" not in each.parents
    }


def test_a_source_distribution_has_the_project(project: set[str], tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    sources = (tmp_path / "tfhybrid.egg-info" / "SOURCES.txt").read_text().splitlines()
    assert {each for each in sources if each.startswith("examples/")} == project


def test_a_wheel_has_the_project_and_writes_it(project: set[str], tmp_path: Path) -> None:
    """From the modules as a wheel has them, beside the native libraries of this checkout."""
    built = tmp_path / "built"
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(built)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    packed = built / "tfhybrid" / "cli" / "project"
    names = {str(each.relative_to(packed)) for each in packed.rglob("*") if each.is_file()}
    assert {f"examples/project/{name}" for name in names} == project
    for library in (ROOT / "tfhybrid" / "ops").glob("*.so"):
        (built / "tfhybrid" / "ops" / library.name).symlink_to(library)
    new = [sys.executable, "-m", "tfhybrid.cli", "new", str(tmp_path / "ads")]
    elsewhere = {**os.environ, "PYTHONPATH": str(built)}
    subprocess.run(new, cwd=tmp_path, env=elsewhere, capture_output=True, check=True)
    assert (tmp_path / "ads" / "launch" / "one_host").stat().st_mode & 0o111
