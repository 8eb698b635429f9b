"""Which stores of killed runs belong together."""

from __future__ import annotations

import pytest

from tfhybrid.job.store_opening import _HostStore, _mismatch

RUN = 77 << 16


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([_HostStore(RUN, {"x": 1}), _HostStore(RUN + 1, {"x": 2})], None),
        ([_HostStore(RUN, {"x": 1}), _HostStore(failure="b: damaged")], "b: damaged"),
        ([_HostStore(RUN, {"x": 1}), _HostStore((78 << 16) + 1, {"x": 1})], "different runs"),
        ([_HostStore(RUN + 1, {"x": 1}), _HostStore(RUN, {"x": 1})], "another order"),
        ([_HostStore(RUN + 1, {"x": 1})], "another order, or are different hosts"),
        ([_HostStore(RUN, {"x": 1}), _HostStore(RUN + 1, {"y": 1})], "different tables"),
    ],
)
def test_stores_belong_together_or_it_is_told_why_not(found, told) -> None:
    why_not = _mismatch(found)
    assert why_not is None if told is None else told in why_not
