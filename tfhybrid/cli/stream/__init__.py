"""`tfhybrid stream`."""
