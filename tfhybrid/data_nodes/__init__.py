"""Batches that other processes read and split: both ends."""
