"""The command line, `tfhybrid`: for files, so it imports neither TensorFlow nor Horovod."""

from tfhybrid.cli.main import app

__all__ = ["app"]
