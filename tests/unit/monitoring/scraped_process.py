"""A process with few descriptors that serves metrics, opens a file when it is told to, and ends.

python -m tests.unit.monitoring.scraped_process DESCRIPTORS
"""

from __future__ import annotations

import resource
import sys

from tfhybrid.monitoring.metrics import STEPS
from tfhybrid.monitoring.prometheus import Endpoint


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(descriptors: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    endpoint = Endpoint("strangers", lambda: [(STEPS, {"": 7.0})], 0)
    say(str(endpoint.port))
    for _ in sys.stdin:
        with open(__file__) as file:  # as a checkpoint would
            say(file.name)
    endpoint.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
