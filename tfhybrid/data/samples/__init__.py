"""Samples in memory: columns, keys, and which rank reads which."""
