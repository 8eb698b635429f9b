"""`tfhybrid checkpoint`."""
