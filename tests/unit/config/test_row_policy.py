"""What a user says of admission and eviction, and what the core makes of it."""

from __future__ import annotations

import pytest

import tfhybrid
from tfhybrid import Admission, Eviction, TableConfig
from tfhybrid.errors import ConfigError


@pytest.mark.parametrize(
    ("rules", "every"),
    [
        ({"unseen_time": 3600}, 1024),
        ({"unseen_steps": 1_000_000}, 1024),
        ({"unseen_steps": 100}, 16),
        ({"unseen_steps": 1}, 1),
        ({"max_rows": 10**8}, 1024),
        ({"max_rows": 5000}, 64),
        ({"max_rows": 3}, 1),
        ({"min_frequency": 0.5, "half_life": 40}, 8),
        ({"unseen_steps": 100, "every_steps": 2**20}, 2**20),
    ],
)
def test_rules_are_not_late_by_much_more_than_their_numbers(rules, every):
    assert Eviction(**rules).every_steps == every
    policy = TableConfig(4, eviction=Eviction(**rules)).policy
    assert 1 << policy["slices_log2"] == every


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({}, r"needs one of the rules .*unseen_steps.*Received: Eviction\("),
        ({"keep": "recent"}, "needs one of the rules"),
        (
            {"unseen_steps": 0},
            r"unseen_steps must be a whole number from 1 to \d+\. Received: .*=0",
        ),
        ({"unseen_steps": 2**31}, r"Received: unseen_steps=2147483648"),
        ({"unseen_steps": 1.5}, r"Received: unseen_steps=1\.5"),
        ({"unseen_time": True}, "Received: unseen_time=True"),
        ({"min_norm": 0}, r"min_norm must be a number above 0\. Received: min_norm=0"),
        ({"min_norm": float("nan")}, "Received: min_norm=nan"),
        ({"min_frequency": -1.0}, r"Received: min_frequency=-1\.0"),
        ({"min_frequency": "often"}, "Received: min_frequency='often'"),
        ({"max_rows": 0}, "Received: max_rows=0"),
        ({"max_rows": 10, "every_steps": 16}, "Received: max_rows=10, every_steps=16"),
        ({"max_rows": 10, "keep": "old"}, r"keep must be 'recent' or 'frequent'\. Received"),
        ({"unseen_steps": 10, "half_life": 5}, "half_life needs min_frequency"),
        (
            {"unseen_steps": 10, "every_steps": 3},
            r"every_steps must be a power of two\. Received: every_steps=3",
        ),
        ({"unseen_steps": 10, "every_steps": 2**21}, "every_steps must be a whole number"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rules, message):
    with pytest.raises(ConfigError, match=message):
        Eviction(**rules)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), r"updates must be a whole number from 1 to 1048576\. Received: updates=0"),
        ((2.0,), r"Received: updates=2\.0"),
        ((2**20 + 1,), "Received: updates=1048577"),
        ((2, 0), "Received: forget_after=0"),
    ],
)
def test_admission_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Admission(*arguments)


def test_a_config_wants_these_two():
    assert TableConfig(4, admission=3).admission == Admission(3)
    assert TableConfig(4).policy == TableConfig(4, admission=1).policy == {}
    with pytest.raises(
        ConfigError, match=r"admission must be a tfhybrid\.Admission.*Received.*'often'"
    ):
        TableConfig(4, admission="often")
    with pytest.raises(
        ConfigError, match=r"eviction must be a tfhybrid\.Eviction.*Received.*=1000"
    ):
        TableConfig(4, eviction=1000)


@pytest.mark.usefixtures("job")
def test_what_goes_by_event_time_wants_a_clock():
    config = TableConfig(4, eviction=Eviction(unseen_time=60))
    layer = tfhybrid.layers.Embedding(config, name="item")
    layer.build()
    optimizer = tfhybrid.DistributedOptimizer("sgd")
    with pytest.raises(ConfigError, match=r"Table 'item' evicts rows by event time.*without a"):
        optimizer.build(layer.trainable_variables)
    with pytest.raises(ConfigError, match=r"event_clock must be a .*EventClock.*Received.*=12"):
        tfhybrid.DistributedOptimizer("sgd", event_clock=12)


@pytest.mark.usefixtures("job")
def test_the_name_of_the_table_of_waiting_keys_is_taken():
    tfhybrid.layers.Embedding(TableConfig(4, admission=2), name="item").build()
    with pytest.raises(tfhybrid.errors.NameTakenError, match="item~waiting"):
        tfhybrid.layers.Embedding(TableConfig(4), name="item~waiting").build()
