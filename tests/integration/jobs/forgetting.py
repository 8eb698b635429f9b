"""A job whose tables forget, killed in the middle and started again; then tells its digests.

    forgetting.py DIRECTORY STEPS [DIE]

DIE: the step after which every rank kills itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import tfhybrid
from tests.support.reference.forgetting_job import ForgettingJob
from tfhybrid import checkpoint

directory, steps = sys.argv[1], int(sys.argv[2])
die = int(sys.argv[3]) if len(sys.argv) > 3 else None

tfhybrid.init("forgetting", resume="memory")
job = ForgettingJob()
begin = checkpoint.restore(job.model, directory).step + 1
for step in range(begin, steps + 1):
    job.train(step, step + 1)
    if step == die:
        os.kill(os.getpid(), signal.SIGKILL)
told = {"rank": tfhybrid.rank(), "begin": begin, "digests": job.digests()}
sys.stdout.write(f"told {json.dumps(told)}\n")
sys.stdout.flush()
