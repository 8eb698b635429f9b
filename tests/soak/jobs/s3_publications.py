"""Publishes to a bucket, and reads: base, deltas, pruning, a rollback and its end."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.support.serving.publishing import Site
from tfhybrid.settings import shm_directory
from tfhybrid.stream.weights import publication as files
from tfhybrid.stream.weights.rollback import release, roll_back


def main(publications: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        site = Site(
            Path(folder), Path(shm_directory()), publications=publications, deltas=1, keep=1
        )
        reader = site.reader()
        for number in range(4):
            site.train(number)
            site.publish()
            assert reader.refresh()
            site.assert_served(reader)
        assert files.numbers(site.publications) == [3, 4]
        assert roll_back(site.publications).number == 3
        assert reader.refresh()
        for _ in range(2):
            found = release(site.publications)
            assert found is not None
            assert found.number == 4
        assert reader.refresh()
        site.assert_served(reader)
        reader.close()
        site.unit.close()
    sys.stdout.write("read from the bucket\n")
    sys.stdout.flush()
    # tensorflow-io 0.37 aborts when a process that used s3 exits.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
