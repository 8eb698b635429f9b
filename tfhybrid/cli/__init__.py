"""The command line, `tfhybrid`. Commands that read files import neither TensorFlow nor Horovod."""

from tfhybrid.cli.main import app

__all__ = ["app"]
