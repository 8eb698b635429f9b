"""Runs one side of a benchmark on hosts of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.support import launch
from tests.support import hosts as several

UNLIMITED = "none"
TIMEOUT_SECONDS = 900


def run_on_hosts(
    command: list[str], hosts: int, ranks: int, rate: str, python: Path = Path(sys.executable)
) -> str:
    """Runs Python under horovodrun on hosts that are made for it; returns what it wrote.

    Args:
        command: such as `["-m", "benchmarks.step.step.bound"]`.
        hosts: number of hosts.
        ranks: of each.
        rate: of each host's link, as tc has it, or `UNLIMITED`.
        python: interpreter.

    Raises:
        SideFailedError: it failed, or did not end.
    """
    with several.hosts(hosts) as made:
        if rate != UNLIMITED:
            made.limit(rate)
        try:
            return made.horovodrun(
                dict.fromkeys(made.names, ranks),
                *command,
                timeout=TIMEOUT_SECONDS,
                python=python,
            )
        except subprocess.TimeoutExpired as error:
            raise launch.SideFailedError(f"not ended within {TIMEOUT_SECONDS} s.") from error
        except AssertionError as error:
            raise launch.SideFailedError(launch.tail(str(error))) from error
