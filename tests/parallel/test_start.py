"""Lifelines once Horovod has brought all ranks together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from tfhybrid import distributed
from tfhybrid.errors import StoreError
from tfhybrid.job.connecting import Calling, Gathering
from tfhybrid.job.lifelines import Lifelines
from tfhybrid.job.rank_identity import RankIdentity
from tfhybrid.job.watch import Watch
from tfhybrid.rpc.listener import listen

SECONDS = 60


@pytest.fixture
def own() -> Iterator[RankIdentity]:
    distributed.start()
    if distributed.size() == 1:
        pytest.skip("a rank alone has no lifelines")
    yield RankIdentity(distributed.rank(), 0, "here", (0, 0), f"secret of {distributed.rank()}")
    distributed.barrier()


def watch(own: RankIdentity, caller: RankIdentity) -> Watch:
    """Every rank but rank 0 is connected by `caller`."""
    rank_0 = own.rank == 0
    listener = listen(distributed.address()) if rank_0 else None
    gathering = listener and Gathering(listener, own, distributed.size(), SECONDS)
    invitation = distributed.broadcast_object(gathering and gathering.invitation)
    connecting = gathering or Calling(caller, SECONDS, invitation)
    made = Watch(own, Lifelines({}, SECONDS), connecting)
    made.horovod_has_started()
    return made


def test_all_meet(own):
    watching = watch(own, own)
    watching.meet()
    watching.leave()


def test_who_has_come_in_the_place_of_a_rank_is_found(own):
    """The token may be read from the launcher's server; what a rank alone knows may not."""
    stranger = dataclasses.replace(own, secret="guessed")
    watching = watch(own, stranger)
    try:
        with pytest.raises(StoreError, match="connected as rank 1 must be a rank of this job"):
            watching.meet()
    finally:
        watching.leave()
