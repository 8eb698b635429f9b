"""Forks ranks from a process that has imported TensorFlow already; one of these runs on each host.

Importing takes most of the time of a short job, and a test that kills jobs starts many. Reads a
line of JSON for each rank (argv, env, output), and answers with the pid of the process that runs
that script; the line {"wait": pid} is answered with its exit status.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys

from tests.reference import click_model
from tfhybrid.checkpoint import restoring, saving

_ = click_model, restoring, saving  # and all that they import


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


order = serve()
if order is not None:
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for stream, file in enumerate((nothing, output, output)):
        os.dup2(file, stream)
    os.environ.update(order["env"])
    sys.argv = order["argv"]
    runpy.run_path(sys.argv[0], run_name="__main__")
