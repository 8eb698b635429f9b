"""What tests of streams share."""

from tests.support.stream.broker import broker
from tests.support.stream.postgres import postgres

__all__ = ["broker", "postgres"]  # the fixtures
