"""The last rank leaves early, in order; the others go on by themselves for a while.

leaving.py exit | raise
"""

from __future__ import annotations

import os
import sys
import threading

import tfhybrid
from tfhybrid.job.watch import GRACE_SECONDS

tfhybrid.init()
child = os.fork()
if child == 0:
    tfhybrid.shutdown()  # not its own to end
    os._exit(0)  # as multiprocessing does: in Horovod's exit handlers a forked child hangs
os.waitpid(child, 0)
last = tfhybrid.rank() == tfhybrid.size() - 1
if last and sys.argv[1] == "exit":
    sys.exit(0)
if last and sys.argv[1] == "raise":
    raise RuntimeError("on purpose")
if not last:
    threading.Event().wait(GRACE_SECONDS + 1)
sys.stdout.write(f"rank {tfhybrid.rank()} has come to the end\n")
