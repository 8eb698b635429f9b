"""The Horovod that is built for tfhybrid, which its version tells from others.

scripts/horovod and scripts/wheels build it from Horovod's source distribution, with the changes
that docs/versions.md lists.
"""

from __future__ import annotations

from importlib import metadata

VERSION = "0.28.1+tfhybrid.2"
INSTALL = (
    "pip install 'tfhybrid[horovod]' --find-links and the folder of tfhybrid's wheels, "
    "or scripts/horovod in tfhybrid's source tree, which compiles it for this TensorFlow"
)


def foreign(version: str) -> str:
    """Describes the installed Horovod, if it was not built for tfhybrid.

    Args:
        version: Version that the files of Horovod have, `horovod.__version__`.

    Returns:
        The version and its difference, for messages; empty if it was built for tfhybrid.
    """
    try:
        installed = metadata.version("horovod")
    except metadata.PackageNotFoundError:
        installed = "none"
    if installed != version:
        return (
            f"files of version {version}, but pip has installed {installed}: another package has "
            "replaced files of Horovod"
        )
    return "" if version == VERSION else f"{version}, which was not built for tfhybrid"
