"""Old path of the metadata node, for one release: `python -m tfhybrid.nodes.metadata`."""
