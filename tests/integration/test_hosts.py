"""Jobs on several hosts: real network namespaces, each with its own shared memory."""

from __future__ import annotations

import re

import pytest

from tests.integration import hosts as several
from tests.integration.conftest import needs_hosts
from tests.certificates.authority import Authority

JOBS = "tests/integration/jobs/"

pytestmark = [
    pytest.mark.timeout(600),
    needs_hosts,
]


def test_each_leader_writes_its_share_and_replicas_are_compared(hosts, tmp_path) -> None:
    job = "tests/integration/jobs/replicas.py"
    output = hosts.horovodrun({"h1": 2, "h2": 2}, job, str(tmp_path))
    assert output.count("saved\n") == 4
    told = re.findall(r"difference found on h2, told on (h\d)", output)
    assert sorted(told) == ["h1", "h1", "h2", "h2"]


def test_a_training_goes_on_with_another_number_of_hosts_and_ranks(hosts, tmp_path) -> None:
    """Every stage equals the NumPy reference that changes its number of ranks at the same step."""
    stages: list[int] = []
    for slots in ({"h1": 2, "h2": 1}, {"h2": 2}, {"h1": 1}):
        stages.append(sum(slots.values()))
        output = hosts.horovodrun(
            slots, JOBS + "resume.py", str(tmp_path), "replicated", *map(str, stages)
        )
        assert output.count("exact on this rank") == stages[-1]


def test_shares_of_a_checkpoint_are_restored_on_other_hosts_and_placements(
    hosts, tmp_path, monkeypatch
) -> None:
    files = Authority(tmp_path / "tls").files("cluster")
    for name, file in (("CERT", files.cert), ("KEY", files.key), ("CA", files.ca)):
        monkeypatch.setenv(f"TFHYBRID_TLS_{name}", file)
    directory = tmp_path / "checkpoints"
    stages: list[int] = []
    for slots, placement in (
        ({"h1": 2, "h2": 1}, "sharded"),
        ({"h1": 1, "h2": 1}, "replicated"),
        ({"h2": 1, "h1": 1}, "table"),
        ({"h1": 1}, "sharded"),
    ):
        stages.append(sum(slots.values()))
        output = hosts.horovodrun(
            slots, JOBS + "resume.py", str(directory), placement, *map(str, stages)
        )
        assert output.count("exact on this rank") == stages[-1]


def test_a_limited_link_is_slow_and_counts_what_crosses_it() -> None:
    with several.hosts(2) as limited:
        limited.limit("50mbit")
        output = limited.horovodrun({"h1": 1, "h2": 1}, "tests/integration/jobs/link.py")
    told = re.findall(r"sent (\d+) bytes in (\S+) s", output)
    assert len(told) == 2
    for sent, seconds in told:
        assert 4_000_000 < int(sent) < 5_000_000
        assert float(seconds) > 0.4  # 0.64 s less the burst


def test_every_way_between_hosts_gives_the_same_bits_and_the_reference(hosts) -> None:
    job = "tests/integration/jobs/exchange.py"
    cases = ("sgd:mean", "clipped:frequency", "forgetting")
    output = hosts.horovodrun({"h1": 2, "h2": 2}, job, *cases, timeout=500)
    assert output.count("exact on this rank") == 4


def test_sharded_tables_train_the_bits_of_replicated_ones(hosts) -> None:
    job = "tests/integration/jobs/sharded.py"
    cases = ("adagrad:frequency", "clipped:mean", "forgetting")
    output = hosts.horovodrun({"h1": 2, "h2": 1}, job, *cases, timeout=500)
    assert output.count("exact on this rank") == 3
