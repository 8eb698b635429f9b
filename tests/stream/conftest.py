"""What tests of streams share."""

from tests.support.stream.broker import broker

__all__ = ["broker"]  # the fixture
