"""Becomes another command, bound to processors and to its parent's life.

    python -I bound_process.py PARENT PROCESSORS COMMAND...

PROCESSORS are numbers with commas between, or nothing for all. The kernel ends the process with the
thread of PARENT that started it. A script of the standard library alone, so that it starts at once;
and no code between fork and exec of the parent, which may have threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Does what the command line says."""
    parent, processors, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit("The parent is gone already")
    if processors:
        os.sched_setaffinity(0, map(int, processors.split(",")))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
