"""Memory and rows of each host of a sharded table, on hosts with their own shared memory."""

from __future__ import annotations

import re

import pytest

from tests.integration.conftest import needs_hosts
from tests.support import hosts as several

pytestmark = [pytest.mark.timeout(600), needs_hosts]


@pytest.mark.parametrize("count", [2, 3])
def test_a_host_takes_its_shard_of_the_table_and_its_pass(count: int, tmp_path) -> None:
    job = "tests/integration/jobs/host_memory.py"
    with several.hosts(count) as hosts:
        output = hosts.horovodrun(dict.fromkeys(hosts.names, 1), job, str(tmp_path / "saved"))
    told = re.findall(r"rank=\d+ host=(\d+) whole=(\d+) passes=(\d+)", output)
    assert len(told) == count, output
    for host, whole, passes in (map(int, sizes) for sizes in told):
        assert host <= 1.1 * (whole / count + passes), output
