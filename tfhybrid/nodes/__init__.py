"""Nodes: the processes of a cluster that own rows or prepare batches, and the links to them."""
