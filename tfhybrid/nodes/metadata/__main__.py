"""Warns, and runs the main function of `tfhybrid.cluster.metadata_node`."""

from tfhybrid._deprecated import warn_renamed
from tfhybrid.cluster.metadata_node import main

if __name__ == "__main__":
    warn_renamed(
        "python -m tfhybrid.nodes.metadata",
        "python -m tfhybrid.cluster.metadata_node",
        stacklevel=2,
    )
    main()
