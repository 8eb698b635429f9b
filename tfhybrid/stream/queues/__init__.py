"""Queues of training data: append-only records, read by position."""
