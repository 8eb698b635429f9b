"""Old path of the data node, for one release: `python -m tfhybrid.data.node`."""
