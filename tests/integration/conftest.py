"""Jobs of real processes: started by horovodrun, with a store directory of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import hosts as several
from tests.support.hosts import Hosts
from tests.support.jobs.running_job import RunningJob

if TYPE_CHECKING:
    from tests.support.jobs.forked_job import ForkedJobs

JOBS = Path(__file__).parent / "jobs"


def needs(why_not: str | None) -> pytest.MarkDecorator:
    """Skips a test that cannot run here; on CI a missing tool is a failure."""
    return pytest.mark.skipif(why_not is not None and not os.environ.get("CI"), reason=str(why_not))


needs_hosts = needs(several.missing())


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    """Two hosts."""
    with several.hosts(2) as made:
        yield made


@pytest.fixture(scope="module")
def forked_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedJobs]:
    """Jobs on this host, whose ranks start at once."""
    from tests.support.jobs import forked_job  # what only some tests ask for reaches only those

    with forked_job.forked_jobs(tmp_path_factory.mktemp("ranks")) as made:
        yield made


@pytest.fixture(scope="module")
def forked_jobs_on_hosts(
    hosts: Hosts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ForkedJobs]:
    """Likewise, on two hosts."""
    from tests.support.jobs import forked_job

    with forked_job.forked_jobs(tmp_path_factory.mktemp("ranks"), hosts) as made:
        yield made


@pytest.fixture
def start_job(shm_directory: Path) -> Iterator:
    jobs: list[RunningJob] = []

    def start(ranks: int, job: str, script: str = "endless.py", *arguments: str) -> RunningJob:
        jobs.append(RunningJob(ranks, shm_directory, JOBS / script, job, *arguments))
        return jobs[-1]

    yield start
    for job in jobs:
        job.stop()
