"""Leases of a trainer, over a real provider and sync unit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

import tfhybrid
from tests.support.stream.online_site import Site
from tfhybrid.errors import LeaseRefusedError
from tfhybrid.stream.provider.work import Request
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec

NO_ROWS = {"item": np.zeros((0, 2), np.float32)}


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path) -> Iterator[Site]:
    site = Site(tmp_path, shm_directory, expires_seconds=6.0)
    yield site
    site.close()


def test_a_lease_that_takes_longer_than_its_lifetime_is_renewed(site: Site):
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=8, wait=False)
    leases.open(ModelSpec({"item": TableSpec(2)}), [])
    site.put(64)
    begun = time.monotonic()
    for batch in range(8):
        assert leases.batch().num_rows == 8
        time.sleep(1.0)  # 8 s for a lease of 6 s
        assert leases.trained() == (batch == 7)
        # Another trainer gets nothing: these rows are still leased.
        other = tfhybrid.stream.Leases(
            site.config, model="ads", batch_size=8, trainer="other", wait=False
        )
        assert other.batch() is None
    assert time.monotonic() - begun > 6.0
    keys = {"item": np.arange(3)}
    assert leases.send(keys, {"item": np.ones((3, 2), np.float32)}, None)
    assert leases.refused == 0


def test_data_end_only_when_no_row_is_left(tmp_path: Path, shm_directory: Path):
    """With `wait=False`, rows that `staleness` holds back are waited for."""
    with contextlib.closing(Site(tmp_path, shm_directory, staleness=0)) as site:
        site.put(128)
        first, second = (
            tfhybrid.stream.Leases(
                site.config, model="ads", batch_size=64, trainer=name, wait=False
            )
            for name in ("first", "second")
        )
        for leases in (first, second):
            leases.open(ModelSpec({"item": TableSpec(2)}), [])
        assert first.batch().num_rows == 64
        has_rows = site.provider.has_rows

        def answer_and_train(request: Request) -> bool:
            answer = has_rows(request)
            if first.work is not None:
                assert first.trained()
                assert first.send({"item": np.zeros(0, np.int64)}, NO_ROWS, None)
            return answer

        site.provider.has_rows = answer_and_train
        assert second.batch().num_rows == 64
        assert first.batch() is None  # the last rows are leased


def test_a_lease_whose_rows_are_not_there_is_given_back(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Once: a second one is an error, because the trainer may read another queue."""
    site.put(64)
    elsewhere = LogQueue(tmp_path / "elsewhere", write=True, fsync="never")
    config = tmp_path / "trainer.yaml"
    fields = yaml.safe_load(site.config.read_text())
    config.write_text(yaml.safe_dump({**fields, "queues": {"video": str(tmp_path / "elsewhere")}}))
    leases = tfhybrid.stream.Leases(config, model="ads", batch_size=64, wait=False, direct=True)
    with pytest.raises(LeaseRefusedError, match=r"has 64 rows. Received: 0 in .*elsewhere"):
        leases.batch()
    assert caplog.text.count("The lease is given back, to be cut again") == 1
    leases.leave()
    elsewhere.append([record for _, record in site.queue("video").read(0).records])
    assert leases.batch().num_rows == 64
