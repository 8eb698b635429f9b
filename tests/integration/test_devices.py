"""Ranks with several devices: layers of one model on different ones, beside data-parallel ranks."""

from __future__ import annotations

import re

from tests.integration.horovodrun import run


def test_layers_on_two_devices_train_as_on_one() -> None:
    one, two = (run(2, "tests/integration/jobs/two_devices.py", k) for k in ("1", "2"))
    digests, same = (re.search(r"digests (.*)", output) for output in (one, two))
    assert digests is not None
    assert same is not None
    assert same[1] == digests[1]
    assert "on CPU:0 CPU:0 CPU:0 CPU:0\n" in one
    assert "on CPU:0 CPU:0 CPU:1 CPU:1\n" in two
