"""Warns, and runs `tfhybrid node embedding`."""

from tfhybrid._deprecated import run_renamed

if __name__ == "__main__":
    run_renamed("python -m tfhybrid.nodes.embedding", "tfhybrid node embedding")
