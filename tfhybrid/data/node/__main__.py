"""Warns, and runs `tfhybrid node data`."""

from tfhybrid._deprecated import run_renamed

if __name__ == "__main__":
    run_renamed("python -m tfhybrid.data.node", "tfhybrid node data")
