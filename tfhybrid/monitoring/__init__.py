"""Metrics of a job and reports on its stores, for the programs that show them."""
