"""200 random kills over all processes of a stream and its broker (TFHYBRID_STREAM_KILLS).

How long each took to work again goes to benchmarks/results/stream_kills.json. Progress is logged:
`scripts/test soak -- -k stream_kills --log-cli-level=INFO`.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.support import launch
from tests.support.stream.broker import Broker, broker
from tests.support.stream.killed_site import check_kills

__all__ = ["broker"]  # the fixture

KILLS = int(os.environ.get("TFHYBRID_STREAM_KILLS", "200"))


def test_each_row_is_in_the_weights_once(broker: Broker, tmp_path: Path, shm_directory: Path):
    times = check_kills(KILLS, broker, tmp_path, shm_directory)
    launch.write_result("stream_kills", {"kills": KILLS, "recovery": times})
