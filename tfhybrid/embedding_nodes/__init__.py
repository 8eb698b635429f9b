"""Rows that other processes own: both ends."""
