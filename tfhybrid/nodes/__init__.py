"""Processes that serve rows, and how others reach them."""
