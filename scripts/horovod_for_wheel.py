"""Changes Horovod's sources so that one wheel has libraries for several releases of TensorFlow.

python scripts/horovod_for_wheel.py SOURCES TENSORFLOW RELEASE...

SOURCES is Horovod's source distribution as `scripts/horovod --sources` leaves it, TENSORFLOW the
package whose headers were compiled last, and RELEASE the releases that there are libraries for.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

LICENCES = Path(__file__).resolve().parents[1] / "requirements" / "licences"

SUFFIX = '''    """Determine library extension for various versions of Python."""
    ext_suffix = sysconfig.get_config_var('EXT_SUFFIX')
    if ext_suffix:
        return ext_suffix

    ext_suffix = sysconfig.get_config_var('SO')
    if ext_suffix:
        return ext_suffix

    return '.so'
'''
SUFFIX_IN_WHEEL = '''    """Returns the end of a library's name for the installed TensorFlow."""
    import tensorflow
    return '-tensorflow-' + '.'.join(tensorflow.__version__.split('.')[:2]) + '.so'
'''
HINT = "'If this is not expected, reinstall Horovod with {}=1 to debug the build error.'"
HINT_IN_WHEEL = "'This wheel of Horovod was built for tfhybrid and for TensorFlow RELEASES only.'"


def replace(file: Path, text: str, other: str) -> None:
    """Replaces a text that a file must have once."""
    source = file.read_text()
    assert source.count(text) == 1, f"{file} has {text!r} {source.count(text)} times, not once"
    file.write_text(source.replace(text, other))


def take_library_of_release(sources: Path, releases: list[str]) -> None:
    """Makes Horovod load `mpi_lib-tensorflow-2.16.so` with TensorFlow 2.16, and refuse others.

    Args:
        sources: Folder of Horovod's sources.
        releases: Releases of TensorFlow that there are libraries for, such as `"2.16.2"`.
    """
    util = sources / "horovod" / "common" / "util.py"
    minors = ", ".join(release.rpartition(".")[0] for release in releases)
    replace(util, SUFFIX, SUFFIX_IN_WHEEL)
    replace(util, HINT, HINT_IN_WHEEL.replace("RELEASES", minors))
    # A library works with every patch of its release.
    replace(util, "if installed_version != version:", "if exception is not None:")
    metadata = {"tensorflow": ", ".join(releases)}
    (sources / "horovod" / "metadata.json").write_text(json.dumps(metadata))
    data = "{'horovod': ['metadata.json'], 'horovod.tensorflow': ['mpi_lib-*.so']}"
    find = "packages=find_packages(),"
    replace(sources / "setup.py", find, f"{find}\n      package_data={data},")


def add_licences(sources: Path, tensorflow: Path) -> None:
    """Adds the licences of what is compiled into the libraries, which setuptools packs.

    Args:
        sources: Folder of Horovod's sources, which has its own licence and that of LBFGS++.
        tensorflow: Package of TensorFlow, whose headers of Eigen and flatbuffers are compiled.
    """
    notices = (tensorflow / "THIRD_PARTY_NOTICES.txt").read_text()
    for name in ("Eigen", "Flatbuffers"):
        section = re.search(rf"^== {name}\n.*?(?=^== )", notices, re.MULTILINE | re.DOTALL)
        assert section is not None, f"TensorFlow's notices have no section {name!r}"
        (sources / f"LICENSE-{name.lower()}").write_text(section[0].rstrip("-\n") + "\n")
    for file in LICENCES.iterdir():
        shutil.copy(file, sources / f"LICENSE-{file.name}")
    shutil.copy(sources / "third_party/lbfgs/LICENSE.md", sources / "LICENSE-lbfgs")
    # It has no other text about its licence.
    shutil.copy(sources / "third_party/HTTPRequest/README.md", sources / "LICENSE-HTTPRequest")


if __name__ == "__main__":
    take_library_of_release(Path(sys.argv[1]), sys.argv[3:])
    add_licences(Path(sys.argv[1]), Path(sys.argv[2]))
