"""Warns, and runs the main function of `tfhybrid.embedding_nodes.embedding_node`."""

from tfhybrid._deprecated import warn_renamed
from tfhybrid.embedding_nodes.embedding_node import main

if __name__ == "__main__":
    warn_renamed(
        "python -m tfhybrid.nodes.embedding",
        "python -m tfhybrid.embedding_nodes.embedding_node",
        stacklevel=2,
    )
    main()
