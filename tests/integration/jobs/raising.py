"""Ranks that end with an error of the script.

raising.py RANK...
"""

from __future__ import annotations

import sys

import tfhybrid

tfhybrid.init()
if str(tfhybrid.rank()) in sys.argv[1:]:
    raise ValueError("wrong on purpose")
