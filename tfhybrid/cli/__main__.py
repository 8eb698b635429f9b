"""`python -m tfhybrid.cli`."""

from tfhybrid.cli.main import app

app()
