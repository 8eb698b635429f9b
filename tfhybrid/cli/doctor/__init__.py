"""`tfhybrid doctor`."""
