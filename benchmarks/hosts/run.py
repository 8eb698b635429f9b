"""Runs one side of a benchmark on hosts of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks import launch
from tests.integration import hosts as several

UNLIMITED = "none"
TIMEOUT_SECONDS = 900


def run_on_hosts(
    module: str, options: list[str], hosts: int, ranks: int, rate: str, python: Path
) -> str:
    """Runs a module under horovodrun on hosts that are made for it; returns what it wrote.

    Args:
        module: such as "benchmarks.step.bound".
        options: its command line.
        hosts: number of hosts.
        ranks: of each.
        rate: of each host's link, as tc has it, or `UNLIMITED`.
        python: interpreter whose environment has the module.

    Raises:
        SideFailedError: it failed, or did not end.
    """
    with several.hosts(hosts) as made:
        if rate != UNLIMITED:
            made.limit(rate)
        try:
            return made.horovodrun(
                dict.fromkeys(made.names, ranks),
                *("-m", module, *options),
                timeout=TIMEOUT_SECONDS,
                python=python,
            )
        except subprocess.TimeoutExpired as error:
            raise launch.SideFailedError(f"not ended within {TIMEOUT_SECONDS} s.") from error
        except AssertionError as error:
            raise launch.SideFailedError(launch.tail(str(error))) from error
