"""`tfhybrid train`."""
