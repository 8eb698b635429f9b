"""Script that runs a command on given processors and ends it when its parent ends.

    python -I bound_process.py PARENT PROCESSORS COMMAND...

PARENT is a process id. PROCESSORS are numbers separated by commas; an empty string means all. The
kernel sends SIGTERM to the process when the thread of PARENT that started it ends.

The script sets this up itself, because its parent may have threads and must not run code between
fork and exec. It imports only the standard library, so it starts fast.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replaces this process by the command of the command line.

    Raises:
        SystemExit: The parent process has already ended.
        OSError: The command cannot be run, or a processor does not exist.
    """
    parent, processors, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit(f"The parent process {parent} has already ended")
    if processors:
        os.sched_setaffinity(0, map(int, processors.split(",")))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
