"""`tfhybrid doctor`: problems of this machine or of a job's hosts, and how to fix them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any

import typer
from rich.text import Text

from tfhybrid.cli.doctor.findings import (
    Finding,
    Level,
    disk,
    find_all,
)
from tfhybrid.cli.doctor.host_ports import unreached
from tfhybrid.cli.terminal.console import plain, show, show_beside, show_json, waiting
from tfhybrid.cli.terminal.options import Json
from tfhybrid.errors import ConfigError

_SECONDS = 300
_WANTS_SSH = "ssh {} must work without a password"
_STYLES = {
    Level.GOOD: "green",
    Level.NOTE: "blue",
    Level.WARNING: "yellow",
    Level.ERROR: "bold red",
}
# Findings that must be equal on all hosts of a job.
_SAME = ("tfhybrid", "TensorFlow", "Horovod")


def doctor(
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:N,...",
            show_default="this host",
            help="Hosts to check over ssh, written as for horovodrun -H.",
        ),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option(
            "--ssh-identity-file", metavar="FILE", help="Private key for ssh, as for horovodrun."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--ssh-port",
            min=1,
            max=65535,
            metavar="PORT",
            show_default="ssh's own",
            help="Port of the sshd of the hosts, as for horovodrun.",
        ),
    ] = None,
    files: Annotated[
        str | None,
        typer.Option(
            metavar="DIRECTORY", help="Directory for tables in files, whose disk to measure."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find what would make a job fail or run slowly.

    Checks the installation, memory, limits and network of this machine, or of the hosts of a job,
    and says how to fix what it finds. Takes up to a minute, since TensorFlow and Horovod are
    imported. Other hosts must have Python with tfhybrid under the same path as this one. The exit
    status is 1 if a finding is an error.

    $ tfhybrid doctor
    $ tfhybrid doctor --hosts host1:4,host2:4
    """
    by_host: dict[str, list[Finding]] = {}
    if hosts is None:
        by_host["this host"] = _look(files, show_each=not as_json)
    else:
        names = _names(hosts)
        options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
        options += ["-o", "StrictHostKeyChecking=no"]  # as horovodrun does
        options += [*(["-i", identity] if identity else []), *(["-p", str(port)] if port else [])]
        with waiting(f"Checking {', '.join(names)}"), ThreadPoolExecutor(len(names)) as threads:
            reports = threads.map(partial(_look_at, options, files), names)
            by_host = dict(zip(names, reports, strict=True))
        with waiting("Connecting the hosts with each other"):
            by_host["all hosts"] = [*_compare(by_host), *_ports(options, by_host)]
        for host, findings in by_host.items():
            if not as_json and findings:
                show(plain(host, "bold"))
                for finding in findings:
                    _show(finding)
    if as_json:
        show_json({host: [each.as_json() for each in all_] for host, all_ in by_host.items()})
    if any(finding.level is Level.ERROR for all_ in by_host.values() for finding in all_):
        raise typer.Exit(1)


def _look(files: str | None, *, show_each: bool) -> list[Finding]:
    findings = []
    for finding in _all_here(files):
        findings.append(finding)
        if show_each:
            _show(finding)
    return findings


def _all_here(files: str | None) -> Iterator[Finding]:
    yield from find_all(lambda check: waiting(f"Checking {check}"))
    if files is not None:
        with waiting(f"Measuring the disk of {files}"):
            finding = disk(files)
        yield finding


def _show(finding: Finding) -> None:
    level = Text(f"{finding.level.value:8}", _STYLES[finding.level])
    show_beside(level, plain(f"{finding.what}: {finding.state}"))
    if finding.mend:
        show_beside(Text(" " * len(level)), plain(finding.mend, "dim"))


def _names(hosts: str) -> list[str]:
    names = [part.split(":")[0].strip() for part in hosts.split(",")]
    if not all(names) or any(name.startswith("-") for name in names):
        raise ConfigError(f"--hosts must be like host1:4,host2:4. Received: {hosts!r}")
    return names


def _look_at(options: list[str], files: str | None, host: str) -> list[Finding]:
    """Runs the doctor on another host; a failure to run it becomes a finding."""
    of_files = [] if files is None else ["--files", files]
    command = shlex.join([sys.executable, "-m", "tfhybrid.cli", "doctor", "--json", *of_files])
    ssh = ["ssh", *options, host, command]
    try:
        run = subprocess.run(ssh, capture_output=True, text=True, timeout=_SECONDS, check=False)
        (findings,) = json.loads(run.stdout).values()
        return [_finding(each) for each in findings]
    except (OSError, subprocess.TimeoutExpired) as error:
        return [Finding("ssh", str(error), Level.ERROR, _WANTS_SSH.format(host))]
    except (ValueError, TypeError, KeyError):
        message = (run.stderr.strip() or run.stdout.strip() or "nothing").splitlines()[-1]
        if run.returncode == 255:  # a failure of ssh itself
            return [Finding("ssh", message, Level.ERROR, _WANTS_SSH.format(host))]
        mend = f"install tfhybrid there like here: {sys.executable} -m pip install tfhybrid"
        return [Finding("tfhybrid", message, Level.ERROR, mend)]


def _finding(fields: dict[str, Any]) -> Finding:
    return Finding(fields["what"], fields["found"], Level(fields["level"]), fields["mend"])


def _compare(by_host: dict[str, list[Finding]]) -> list[Finding]:
    """Returns findings that differ between hosts but must be equal."""
    differing = []
    for what in _SAME:
        values = {
            host: finding.state
            for host, findings in by_host.items()
            for finding in findings
            if finding.what == what and finding.level is not Level.ERROR
        }
        if len(set(values.values())) > 1:
            text = "; ".join(f"{host}: {value}" for host, value in values.items())
            mend = "install the same on all hosts"
            differing.append(Finding(what, f"differs: {text}", Level.ERROR, mend))
    return differing


def _ports(options: list[str], by_host: dict[str, list[Finding]]) -> list[Finding]:
    """Tests whether the hosts on which tfhybrid runs reach each other's ports."""
    running = [
        host
        for host, findings in by_host.items()
        if any(each.what == "tfhybrid" and each.level is Level.GOOD for each in findings)
    ]
    if len(running) < 2:
        return []
    failures = unreached(["ssh", *options], running)
    if not failures:
        hosts = ", ".join(running)
        return [Finding("ports", f"the hosts {hosts} reach each other's free ports")]
    text = "; ".join(
        f"{host} cannot reach {other} ({why})" for (host, other), why in failures.items()
    )
    mend = (
        "open all ports between the hosts in firewalls and network policies: Horovod and the row "
        "service of sharded tables listen on arbitrary free ports"
    )
    return [Finding("ports", text, Level.ERROR, mend)]
