"""Tests of ports between hosts, with a command in place of ssh."""

from __future__ import annotations

from tfhybrid.cli.doctor import host_ports

# Runs what it is given, as ssh does on a host; on "stuck", attempts to connect never end.
SSH = """host=$0
if [[ $host == stuck && $1 == *dial* ]]; then exec sleep 600; fi
exec bash -c "$1"
"""


def test_a_host_that_does_not_finish_is_named(monkeypatch) -> None:
    monkeypatch.setattr(host_ports, "_ANSWER_SECONDS", 1.0)
    failures = host_ports.unreached(["bash", "-c", SSH], ["127.0.0.1", "stuck"])
    assert failures["stuck", "127.0.0.1"] == "it did not answer within 1 s"
