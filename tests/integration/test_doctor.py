"""The doctor looks at several hosts, each with something of its own that is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import needs_hosts
from tests.support.hosts import ROOT, Hosts

pytestmark = [
    pytest.mark.timeout(600),
    needs_hosts,
]


def examine(hosts: Hosts, names: str = "h1:2,h2:2") -> tuple[int, dict[str, dict[str, Any]], str]:
    """Returns exit status and findings by host and subject, and what a person sees."""
    doctor = [sys.executable, "-m", "tfhybrid.cli", "doctor", "--hosts", names]
    doctor += ["--ssh-identity-file", str(hosts.key)]
    found = subprocess.run(
        [*hosts.enter("h1"), *doctor, "--json"], capture_output=True, text=True, check=False
    )
    assert found.stdout, found.stderr
    by_host = {
        host: {finding["what"]: finding for finding in findings}
        for host, findings in json.loads(found.stdout).items()
    }
    return found.returncode, by_host, found.stdout


def test_hosts_are_good_until_one_is_not(hosts: Hosts, tmp_path: Path) -> None:
    status, found, _ = examine(hosts)
    assert status == 0, found
    assert set(found) == {"h1", "h2", "all hosts"}
    assert "this host is h2" in found["h2"]["network"]["found"]
    assert "the hosts h1, h2 reach each other's free ports" in found["all hosts"]["ports"]["found"]

    hosts.shrink("h2", "64m")
    other = tmp_path / "other.py"
    other.write_text('__version__ = "0.0.9"\n')
    with hosts.replaced("h2", ROOT / "tfhybrid/_version.py", other):
        status, found, _ = examine(hosts)
    hosts.shrink("h2", "8g")
    assert status == 1
    shm = found["h2"]["store /dev/shm"]
    assert (shm["level"], found["h1"]["store /dev/shm"]["level"]) == ("error", "good")
    assert "67.1 MB" in shm["found"]
    assert "--shm-size" in shm["mend"]
    assert "h2: 0.0.9" in found["all hosts"]["tfhybrid"]["found"]


def test_a_host_without_the_package_or_that_is_not_there_is_named(
    hosts: Hosts, tmp_path: Path
) -> None:
    with hosts.replaced("h2", ROOT / "tfhybrid", tmp_path):
        status, found, _ = examine(hosts, "h1:1,h2:1,nowhere:1")
    assert status == 1
    assert "tfhybrid" in found["h2"]["tfhybrid"]["found"]
    assert "install tfhybrid there like here" in found["h2"]["tfhybrid"]["mend"]
    assert "ssh nowhere must work without a password" in found["nowhere"]["ssh"]["mend"]
    assert found["h1"]["TensorFlow"]["level"] == "good"


def test_a_firewall_between_hosts_is_named(hosts: Hosts) -> None:
    """Ssh comes through it, as through most firewalls."""
    enter = hosts.enter("h2")
    rule = ("INPUT", "-p", "tcp", "--dport", "1024:65535", "--syn", "-j", "REJECT")
    subprocess.run([*enter, "iptables", "-A", *rule], check=True)
    try:
        status, found, _ = examine(hosts)
    finally:
        subprocess.run([*enter, "iptables", "-D", *rule], check=True)
    assert status == 1
    ports = found["all hosts"]["ports"]
    assert ports["level"] == "error"
    assert re.search(r"h1 cannot reach h2 \(port \d+: .*Connection refused", ports["found"])
    assert "h2 cannot reach h1" not in ports["found"]
    assert "firewalls" in ports["mend"]
