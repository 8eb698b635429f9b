"""What is published equals the weights, bit for bit, in every reader, whatever happens between."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support.reference.asynchronous import Replay
from tests.support.serving.publishing import KEYS, Site, wide_update
from tests.support.stream.model_updates import ADAGRAD, DELTAS, DENSE, GRADIENTS, lease_update
from tfhybrid.checkpoint import storage
from tfhybrid.errors import ConfigError, CorruptFileError, PublicationError
from tfhybrid.initializers import Uniform
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.sync_unit.publisher import PublishRules, WithheldError
from tfhybrid.stream.weights import publication as files
from tfhybrid.stream.weights.model_spec import TableSpec
from tfhybrid.stream.weights.observed import Observed


@pytest.fixture
def sites(tmp_path: Path, shm_directory: Path) -> Iterator:
    opened: list = []

    def open_site(**choices) -> Site:
        opened.append(Site(tmp_path, shm_directory, **choices))
        return opened[-1]

    yield open_site
    for site in opened:
        site.unit.close()


STATES = dataclasses.replace(
    DELTAS, tables={**DELTAS.tables, "item": TableSpec(3, Uniform().native, ADAGRAD, slots=1)}
)


@pytest.mark.parametrize("spec", [DELTAS, GRADIENTS, STATES], ids=["deltas", "gradients", "states"])
def test_base_and_deltas_equal_the_weights(sites, spec):
    site = sites(spec=spec)
    reader = site.reader()
    assert reader.refresh() is False
    with pytest.raises(PublicationError, match=r"No publication of .* has been read yet"):
        reader.read({"item": KEYS})
    for round_ in range(4):
        site.train(2 * round_, 2 * round_ + 1)
        made = site.publish()
        assert made.is_base == (round_ == 0)
        assert site.publish() is None  # nothing has changed
        assert reader.refresh() is True
        assert reader.refresh() is False
        site.assert_served(reader)
    late = site.reader()
    late.refresh()
    site.assert_served(late)
    assert (reader.gaps, late.gaps) == (0, 0)
    with pytest.raises(ConfigError, match="Tables are"):
        reader.read({"price": KEYS})
    late.close()
    reader.close()


def test_a_delta_has_what_changed_and_no_more(sites):
    site = sites()
    site.train(*range(10))
    base = site.publish()
    site.model.apply(lease_update(10))
    delta = site.publish()
    update = lease_update(10)
    assert delta.rows == sum(len(keys) for keys in update.keys.values()) < base.rows
    assert delta.chain[0].number == base.number
    # A checkpoint takes none of the publisher's marks.
    site.model.apply(lease_update(11))
    site.model.save()
    assert site.publish().rows == sum(len(keys) for keys in lease_update(11).keys.values())


def test_bases_come_when_a_chain_is_long_and_old_ones_go(sites):
    site = sites(deltas=2, keep=2)
    follower, kinds = site.reader(), []
    for number in range(10):
        site.train(number)
        kinds.append(site.publish().is_base)
        follower.refresh()
    assert follower.gaps == 0  # a new base is no missed delta
    follower.close()
    assert kinds == ([True, False, False] * 4)[:10]
    assert files.numbers(site.publications) == [7, 8, 9, 10]
    reader = site.reader()
    reader.refresh()
    site.assert_served(reader)
    reader.close()


def test_a_reader_that_missed_deltas_goes_on_with_them_or_takes_the_base(sites):
    site = sites(deltas=3, keep=1)
    reader = site.reader()
    site.train(0)
    site.publish()
    reader.refresh()
    for number in (1, 2):
        site.train(number)
        site.publish()
    reader.refresh()  # two deltas at once
    assert reader.gaps == 0
    site.assert_served(reader)
    for number in range(3, 9):  # its chain is pruned meanwhile
        site.train(number)
        site.publish()
    reader.refresh()
    assert reader.gaps == 1
    site.assert_served(reader)
    reader.close()


@pytest.mark.parametrize("saved", ["before", "after", "never"])
def test_a_process_that_starts_again_extends_the_chain_or_begins_a_new_one(sites, saved):
    site = sites()
    reader = site.reader()
    site.train(0, 1)
    if saved == "before":
        site.model.save()
    first = site.publish()
    reader.refresh()
    site.train(2)
    if saved == "after":  # what changed between publication and base is not known
        site.model.save()
    site.kill()
    site.start()
    site.publish()
    assert site.publish() is None
    site.train(3)
    site.publish()
    assert reader.refresh()
    site.assert_served(reader)
    last = site.publisher.last
    assert last.incarnation == first.incarnation + (saved == "after")
    assert (last.base == first.number) == (saved != "after")
    reader.close()


def test_a_clean_end_publishes_and_the_next_process_extends_the_chain(sites):
    site = sites()
    site.train(0)
    site.publish()
    site.train(1)
    site.unit.close()
    site.start()
    assert site.publish() is None
    site.train(2)
    assert not site.publish().is_base
    assert site.publisher.last.version == 4


def test_weights_that_fell_back_begin_a_new_incarnation(sites, tmp_path: Path):
    site = sites()
    site.train(0)
    site.publish()
    kept = tmp_path / "kept"
    shutil.copytree(site.folder / "models", kept)
    reader = site.reader()
    site.train(1)
    site.publish()
    reader.refresh()
    old = files.current(site.publications)
    site.kill()
    shutil.rmtree(site.folder / "models")  # a disk is lost; an older copy takes its place
    kept.rename(site.folder / "models")
    site.start()
    site.replay = Replay(DELTAS, DENSE)
    for update in (wide_update(DELTAS), lease_update(0)):
        site.replay.apply(update)
    site.train(5)  # other weights of the same version
    assert site.model.version == 3
    made = site.publish()
    assert made.is_base
    assert made.incarnation == 2
    reader.refresh()
    site.assert_served(reader)
    # The old publisher, which was believed dead, publishes once more.
    files.point_to(site.publications, old)
    with pytest.raises(PublicationError, match=r"goes back only by a rollback. Received: .* of in"):
        reader.refresh()
    site.assert_served(reader)
    reader.close()


def test_a_publication_that_fails_loses_no_change(sites, monkeypatch):
    site = sites()
    reader = site.reader()
    site.train(0)
    site.publish()
    reader.refresh()
    steps = ["begin", "write", "finish", "write_whole"]
    for number, step in enumerate(steps, 1):
        site.train(number)
        with monkeypatch.context() as patch:
            patch.setattr(storage, step, _no_space)
            with pytest.raises(PublicationError, match=r"could not be published.*No space left"):
                site.publish()
        assert reader.refresh() is False
        assert site.model.unpublished_rows == 10 * number
    made = site.publish()
    assert not made.is_base
    assert made.samples == 40
    reader.refresh()
    site.assert_served(reader)
    assert site.publisher.status()["failed"] == len(steps)
    reader.close()


def test_publications_come_by_the_clock_and_at_the_end(sites):
    site = sites(seconds=0.05)
    until = time.monotonic() + 30
    while site.publisher.last is None and time.monotonic() < until:
        time.sleep(0.01)
    assert site.publisher.last.version == 1
    site.train(0)
    site.unit.close()
    site.start()
    reader = site.reader()
    reader.refresh()
    site.assert_served(reader)
    reader.close()


def test_enough_rows_come_before_the_clock(sites):
    site = sites(rows=25)
    site.publish()
    for number, due in enumerate([False, False, True]):
        site.train(number)  # ten rows
        assert site.publisher.due(0.0) is due
    site.publish()
    assert site.publisher.due(0.0) is False
    assert site.publisher.due(1e6) is True


def _no_space(*_, **__):
    raise OSError(28, "No space left on device")


def test_kill_9_at_each_step_leaves_a_publication_and_the_next_process_extends_the_chain(
    sites, monkeypatch, tmp_path: Path
):
    """What lies on the disk before each step is what a process that is killed there leaves."""
    site = sites()
    site.train(0)
    site.publish()
    left: list[Path] = []

    def watched(do):
        def watching(*arguments, **choices):
            left.append(tmp_path / f"left-{len(left)}")
            shutil.copytree(site.publications, left[-1])
            return do(*arguments, **choices)

        return watching

    before = dict(zip(("item", "user"), _served(site), strict=True))
    site.train(1)
    with monkeypatch.context() as patch:
        for step in ("begin", "write", "finish", "write_whole", "remove", "local_file"):
            patch.setattr(storage, step, watched(getattr(storage, step)))
        site.publish()
    left.append(site.publications)
    assert len(left) >= 7
    after = dict(zip(("item", "user"), _served(site), strict=True))
    site.kill()
    seen = []
    for publications in left:
        site.start(publications)
        reader = site.reader()
        reader.refresh()
        found = reader.read({"item": KEYS, "user": KEYS}).rows
        seen.append(any((found["item"] != before["item"]).ravel()))
        wanted = after if seen[-1] else before
        for name in wanted:
            np.testing.assert_array_equal(found[name], wanted[name])
        site.publish()
        reader.refresh()
        site.assert_served(reader)
        assert site.publisher.last.incarnation == 1
        assert not site.publisher.last.is_base
        reader.close()
        site.kill()
    assert seen == sorted(seen)
    site.start()


def _served(site: Site) -> list[np.ndarray]:
    return [site.replay.lookup(name, KEYS) for name in ("item", "user")]


def test_what_is_not_finite_is_withheld_and_named(sites):
    site = sites(spec=GRADIENTS)
    site.train(0)
    site.publish()
    update = lease_update(1, GRADIENTS)
    update.values["item"][3, 1] = 1e30
    huge = dataclasses.replace(update, rates={**update.rates, "item": 1e30})
    with pytest.raises(ConfigError, match="must be able to keep its rows finite"):
        site.model.apply(huge)
    site.unit.close()
    with closing(LogQueue(site.folder / "models" / "ads" / "journal", write=True)) as journal:
        journal.append([huge.to_record()])  # as a version of tfhybrid did that took it
    site.start()
    key = int(update.keys["item"][3])
    with pytest.raises(WithheldError, match=rf"key {key} of table 'item' has .*inf"):
        site.publish()
    assert "must be finite" in files.withheld(site.publications)["reason"]
    reader = site.reader()
    reader.refresh()
    site.assert_served(reader)
    assert files.numbers(site.publications) == [1]
    assert site.publisher.status()["withheld"] == 1
    reader.close()


def test_an_auc_that_falls_is_withheld_until_it_rises_or_somebody_insists(sites):
    site = sites(auc_drop=0.05, auc_rows=100)

    def seen(right: float, rows: int = 100) -> dict:
        labels = np.arange(rows) % 2
        scores = np.where(np.arange(rows) < right * rows, labels, 1 - labels)
        return Observed.of_scores(scores, labels).to_json()

    site.train(0, observed=seen(0.9))
    assert site.publish().auc == pytest.approx(0.9, abs=0.01)
    site.train(1, observed=seen(0.87))
    assert site.publish().auc == pytest.approx(0.87, abs=0.01)
    site.train(2, observed=seen(0.5))
    with pytest.raises(WithheldError, match=r"may fall by at most 0.05 from 0.87.*Received: 0.5"):
        site.publish()
    site.train(3, observed=seen(0.9, rows=50))
    with pytest.raises(
        WithheldError, match=r"new samples to see whether it has risen again. Received: 50"
    ):
        site.publish()
    site.train(4, observed=seen(0.9, rows=50))
    made = site.publish()
    assert made.auc == pytest.approx(0.9, abs=0.01)
    assert made.samples == 30  # rows of the updates 2, 3 and 4
    site.train(5, observed=seen(0.5))
    assert site.publisher.publish(anyway=True).auc == pytest.approx(0.5, abs=0.01)


def test_damage_changes_nothing(sites):
    site = sites()
    site.train(0)
    site.publish()
    reader = site.reader()
    reader.refresh()
    served = reader.read({"item": KEYS}).rows["item"]
    site.train(1)
    site.publish()
    folder = files.folder_of(site.publications, 2)
    damaged = [*sorted(folder.iterdir()), site.publications / "current.json"]
    for file in damaged:
        content = file.read_bytes()
        file.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        with pytest.raises((CorruptFileError, PublicationError)):
            reader.refresh()
        np.testing.assert_array_equal(reader.read({"item": KEYS}).rows["item"], served)
        file.write_bytes(content)
    assert reader.failures == len(damaged)
    reader.refresh()
    site.assert_served(reader)
    reader.close()


@pytest.mark.parametrize("change", [{"seconds": 0}, {"deltas": -1}, {"keep": 0}, {"auc_drop": 2.0}])
def test_rules_that_cannot_be(change):
    with pytest.raises(ConfigError, match="Publications need seconds above 0"):
        PublishRules("folder", **change)
