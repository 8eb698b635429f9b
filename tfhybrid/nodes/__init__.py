"""Old paths of the nodes, for one release."""
