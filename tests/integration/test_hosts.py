"""Jobs on several hosts: real network namespaces, each with its own shared memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import needs_hosts
from tests.support import hosts as several
from tests.support.certificates.authority import Authority, variables_of

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


def test_a_training_resumes_with_another_number_of_hosts_and_ranks(
    forked_jobs_on_hosts, tmp_path
) -> None:
    """Every stage equals the NumPy reference that changes its number of ranks at the same step."""
    stages: list[int] = []
    for slots in ({"h1": 1, "h2": 2}, {"h2": 2}, {"h1": 1}):
        stages.append(sum(slots.values()))
        job = forked_jobs_on_hosts.start(
            slots, JOBS + "resume.py", str(tmp_path), "replicated", *map(str, stages)
        )
        assert job.succeed().count("exact on this rank") == stages[-1]


def test_shards_of_a_checkpoint_are_restored_on_other_hosts_and_placements(
    forked_jobs_on_hosts, tmp_path
) -> None:
    files = Authority(tmp_path / "tls").files("cluster")
    directory = tmp_path / "checkpoints"
    stages: list[int] = []
    for slots, placement in (
        ({"h1": 2, "h2": 1}, "sharded"),
        ({"h1": 1, "h2": 1}, "replicated"),
        ({"h2": 1, "h1": 1}, "table"),
        ({"h1": 1}, "sharded"),
    ):
        stages.append(sum(slots.values()))
        arguments = (JOBS + "resume.py", str(directory), placement, *map(str, stages))
        job = forked_jobs_on_hosts.start(slots, *arguments, env=variables_of(files))
        assert job.succeed().count("exact on this rank") == stages[-1]
        told = checkpoint_tool("verify", directory / "adagrad")
        assert "all good" in told, told
    tools_know_shards(directory / "adagrad", tmp_path)


def tools_know_shards(directory: Path, folder: Path) -> None:
    """Of the checkpoints that the stages have left: all but the third one have two shards."""
    newest = sorted(directory.glob("step-*"))[-1]
    assert '"item"' in checkpoint_tool("inspect", directory, "--json")
    told = checkpoint_tool("export", directory, folder / "item.npz", "--table", "item", "--states")
    rows = int(re.search(r"(\d+) rows", told)[1])
    copied = ("--table", "item", "--output", folder / "copy")
    assert f"{rows} rows" in checkpoint_tool("import", directory, folder / "item.npz", *copied)
    assert "all good" in checkpoint_tool("verify", folder / "copy")
    (copy,) = (folder / "copy").glob("step-*")
    itself, same = (
        json.loads(checkpoint_tool("diff", newest, other, "--json")) for other in (newest, copy)
    )
    assert same.pop("b") != itself.pop("b")
    assert same == itself


def checkpoint_tool(command: str, *arguments: object) -> str:
    """Runs `tfhybrid checkpoint`; returns what it wrote."""
    tool = [sys.executable, "-m", "tfhybrid.cli", "checkpoint", command, *map(str, arguments)]
    done = subprocess.run(tool, env=several.ACTIVE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_limited_link_is_slow_and_counts_what_crosses_it() -> None:
    with several.hosts(2) as limited:
        limited.limit("50mbit")
        output = limited.horovodrun({"h1": 1, "h2": 1}, "tests/integration/jobs/link.py")
    told = re.findall(r"sent (\d+) bytes in (\S+) s", output)
    assert len(told) == 2
    for sent, seconds in told:
        assert 4_000_000 < int(sent) < 5_000_000
        assert float(seconds) > 0.4  # 0.64 s less the burst


def test_every_way_between_hosts_gives_the_same_bits_and_the_reference(
    forked_jobs_on_hosts,
) -> None:
    job = "tests/integration/jobs/exchange.py"
    cases = ("sgd:mean", "clipped:frequency", "forgetting")
    output = forked_jobs_on_hosts.start({"h1": 2, "h2": 2}, job, *cases).succeed()
    assert output.count("exact on this rank") == 4


def test_sharded_tables_train_the_bits_of_replicated_ones(forked_jobs_on_hosts) -> None:
    job = "tests/integration/jobs/sharded.py"
    cases = ("adagrad:frequency", "clipped:mean", "forgetting")
    output = forked_jobs_on_hosts.start({"h1": 2, "h2": 1}, job, *cases).succeed()
    assert output.count("exact on this rank") == 3
    told = (
        r"Passes of up to 7 batch.* rows, .* of fast tier .* a maximum of .* GB\. "
        r"Slow tier of this host"
    )
    assert re.search(told, output)


def test_announced_rows_in_files_train_the_bits_of_memory(forked_jobs_on_hosts) -> None:
    job = "tests/integration/jobs/announced_files.py"
    output = forked_jobs_on_hosts.start({"h1": 2, "h2": 2}, job).succeed()
    assert output.count("exact on this rank") == 4


def test_one_rank_goes_on_alone_after_the_others_have_come_to_their_ends(
    forked_jobs_on_hosts,
) -> None:
    """Leaders serve their rows until then; a collective fails instead of waiting for them."""
    output = forked_jobs_on_hosts.start({"h1": 2, "h2": 2}, JOBS + "alone.py").succeed()
    assert re.search(r"alone: 2000 rows of 2 hosts, error 0\.\d", output), output


def test_an_owner_that_is_slow_to_connect_answers_what_was_announced(hosts) -> None:
    output = hosts.horovodrun({"h1": 1, "h2": 1}, JOBS + "slow_to_connect.py", timeout=100)
    assert output.count("trained 400 rows") == 2, output


@pytest.mark.parametrize(
    ("count", "memory"), [(2, "64m"), pytest.param(4, "29m", marks=pytest.mark.weekly)]
)
def test_the_example_of_a_table_larger_than_a_host(count: int, memory: str) -> None:
    """Of 88 MB: 1.4 and 3 times what a host may hold."""
    example = several.ROOT / "examples/larger_than_a_host.py"
    command = [sys.executable, example, "--hosts", str(count), "--memory", memory]
    done = subprocess.run(command, env=several.ACTIVE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    replicated, _, sharded = done.stdout.partition("sharded: exit status 0")
    assert "OutOfSpaceError: No room for table 'item'" in replicated
    rows = [int(count.replace(",", "")) for count in re.findall(r"has ([\d,]+) rows", sharded)]
    assert len(rows) == count, done.stdout
    assert sum(rows) == 400_000
    assert "trained 400,000 rows" in sharded


def test_no_host_holds_more_than_its_own_rows(hosts, tmp_path) -> None:
    """Peaks of memory, by bytes; what is left over is TensorFlow's, and blocks of rows."""
    job = JOBS + "share_memory.py"
    output = hosts.horovodrun({"h1": 1, "h2": 1}, job, str(tmp_path / "checkpoints"))
    pattern = r"rank=(\d) total=(\d+) own=(\d+) saved=(\d+) restored=(\d+) exported=(\d+)"
    told = re.findall(pattern, output)
    assert len(told) == 2, output
    for _, *sizes in told:
        total, own, saved, restored, exported = map(int, sizes)
        assert saved < own + 0.1 * total, output  # its rows, mapped a second time
        assert restored < own + 0.35 * total, output  # the index that grows, and blocks
        assert own + 0.35 * total < 2 * own  # which it would be with all rows
        # Blocks and pieces of files, whatever the size of the table: all keys and embeddings would
        # be 0.52 of the total.
        assert exported < 0.25 * total, output
