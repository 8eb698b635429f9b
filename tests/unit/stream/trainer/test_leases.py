"""Leases of a trainer, over a real provider and sync unit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tfhybrid
from tests.support.stream.online_site import Site
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path) -> Iterator[Site]:
    site = Site(tmp_path, shm_directory, expires_seconds=3.0)
    yield site
    site.close()


def test_a_lease_that_takes_longer_than_its_lifetime_is_renewed(site: Site):
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=8, wait=False)
    leases.open(ModelSpec({"item": TableSpec(2)}), [])
    site.put(64)
    begun = time.monotonic()
    for batch in range(8):
        assert leases.batch().num_rows == 8
        time.sleep(0.5)  # 4 s for a lease of 3 s
        assert leases.trained() == (batch == 7)
        # Another trainer gets nothing: these rows are still leased.
        other = tfhybrid.stream.Leases(
            site.config, model="ads", batch_size=8, trainer="other", wait=False
        )
        assert other.batch() is None
    assert time.monotonic() - begun > 3.0
    keys = {"item": np.arange(3)}
    assert leases.send(keys, {"item": np.ones((3, 2), np.float32)}, None)
    assert leases.refused == 0
