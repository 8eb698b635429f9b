"""Forks scripts from a process that has imported TensorFlow already; python.py talks to it.

Importing takes most of the time of a short script, and tests start many. Reads a line of JSON for
each (argv, env, cwd, and the files that stdout and stderr are appended to), and answers with the
pid of the process that runs it; the line {"wait": pid} is answered with its exit status.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys

from tests.support.reference import click_model
from tfhybrid import data, export, metrics, models
from tfhybrid.checkpoint import restoring, saving

_ = click_model, data, export, metrics, models, restoring, saving  # and all that they import


def serve() -> dict | None:
    """Returns what a child is to run, and nothing when the parent is done."""
    gc.freeze()  # what was imported is not copied by a collection in every child
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            _, status = os.waitpid(order["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                return order
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    return None


def redirect(stream: int, path: str, flags: int) -> None:
    """Lets a standard stream be a file."""
    file = os.open(path, flags, 0o644)
    os.dup2(file, stream)
    os.close(file)


order = serve()
if order is not None:
    redirect(0, os.devnull, os.O_RDONLY)
    for stream, path in enumerate((order["stdout"], order["stderr"]), start=1):
        redirect(stream, path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.argv = order["argv"]
    sys.path[0] = os.path.dirname(sys.argv[0])  # as `python SCRIPT` has it
    runpy.run_path(sys.argv[0], run_name="__main__")
