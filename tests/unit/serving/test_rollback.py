"""Readers are pointed back, stay there while publications come, and go on when released."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.serving.publishing import KEYS, Site, settings_of
from tfhybrid.cli.stream.stream_command import app
from tfhybrid.errors import PublicationError
from tfhybrid.stream.weights import publication as files
from tfhybrid.stream.weights.rollback import release, roll_back


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path) -> Iterator[Site]:
    site = Site(tmp_path, shm_directory, deltas=3, keep=1)
    yield site
    site.unit.close()


def test_readers_are_held_and_released(site: Site):
    reader = site.reader()
    served = {}
    for number in range(1, 4):
        site.train(number)
        site.publish()
        reader.refresh()
        served[number] = reader.read({"item": KEYS}).rows["item"]
    assert roll_back(site.publications).number == 2
    assert roll_back(site.publications).number == 1
    assert roll_back(site.publications, 2).number == 2
    assert reader.refresh()
    np.testing.assert_array_equal(reader.read({"item": KEYS}).rows["item"], served[2])
    assert reader.gaps == 0
    for number in range(4, 12):  # what readers are held at is not pruned
        site.train(number)
        site.publish()
        assert not reader.refresh()
    assert {1, 2} <= set(files.numbers(site.publications))
    fresh = site.reader()
    fresh.refresh()
    np.testing.assert_array_equal(fresh.read({"item": KEYS}).rows["item"], served[2])
    assert release(site.publications).number == 11
    for each in (reader, fresh):
        assert each.refresh()
        site.assert_served(each)
        each.close()
    site.train(12)
    site.publish()
    assert 2 not in files.numbers(site.publications)


def test_what_cannot_be(site: Site):
    with pytest.raises(PublicationError, match="no earlier publication"):
        roll_back(site.publications)
    site.train(0)
    site.publish()
    with pytest.raises(PublicationError, match="no earlier publication"):
        roll_back(site.publications)
    site.train(1)
    site.publish()
    shutil.copytree(
        files.folder_of(site.publications, 2), files.folder_of(site.publications, 3)
    )  # never named
    for number in (3, 7):
        with pytest.raises(PublicationError, match=rf"publications \[1, 2\]. Received: {number}"):
            roll_back(site.publications, number)
    shutil.rmtree(files.folder_of(site.publications, 1))
    with pytest.raises(PublicationError, match=r"publications \[\]. Received: 2"):
        roll_back(site.publications, 2)  # its base is gone
    assert files.held(site.publications) is None
    assert release(site.publications).number == 2


def test_the_command(site: Site, tmp_path: Path):
    config = settings_of(tmp_path, site.publications)
    for number in range(2):
        site.train(number)
        site.publish()
    run = CliRunner()
    done = run.invoke(app, ["rollback", str(config), "ads"])
    assert done.output == "ads: readers are held at publication 1\n"
    done = run.invoke(app, ["rollback", str(config), "ads", "--release"])
    assert done.output == "ads: readers follow publication 2\n"
    done = run.invoke(app, ["rollback", str(config), "news"])
    assert "Received: model 'news'" in str(done.exception)
