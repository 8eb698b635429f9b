"""Old path of the embedding node, for one release: `python -m tfhybrid.nodes.embedding`."""
