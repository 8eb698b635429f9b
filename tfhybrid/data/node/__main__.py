"""Warns, and runs the main function of `tfhybrid.data.data_node`."""

from tfhybrid._deprecated import warn_renamed
from tfhybrid.data.data_node import main

if __name__ == "__main__":
    warn_renamed("python -m tfhybrid.data.node", "python -m tfhybrid.data.data_node", stacklevel=2)
    main()
