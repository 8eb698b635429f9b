"""The place up to which a query's rows are in a queue, as text that the queue stores."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import math
from collections.abc import Callable
from typing import Any

from tfhybrid.errors import ConfigError, DataError

# Names of the types of values that a database can order: to text, and back.
_TYPES: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    int: ("int", str, int),
    float: ("float", repr, float),
    decimal.Decimal: ("decimal", str, decimal.Decimal),
    str: ("text", str, str),
    datetime.datetime: ("time", lambda time: time.isoformat(), datetime.datetime.fromisoformat),
    datetime.date: ("date", lambda date: date.isoformat(), datetime.date.fromisoformat),
}
_BY_NAME = {name: from_text for name, _, from_text in _TYPES.values()}


@dataclasses.dataclass(frozen=True)
class DatabasePosition:
    """The place in the rows of a query after which the next ones follow.

    Args:
        query: Text of the query.
        after: Name of the increasing column.
        value: Value of the column in the last row; `None` before the first row.
    """

    query: str
    after: str
    value: Any = None

    def to_text(self) -> str:
        """Returns the position as text.

        Raises:
            DataError: The value has a type that cannot be an increasing column, or is not finite.
        """
        return json.dumps({"query": self.query, "after": self.after, "value": self._as_text()})

    @classmethod
    def of_text(cls, text: str) -> DatabasePosition:
        """Returns the position from the text of `to_text`.

        Args:
            text: The text.

        Raises:
            ConfigError: The text is not of `to_text`.
        """
        try:
            fields = json.loads(text)
            name, value = fields["value"]
            return cls(fields["query"], fields["after"], _BY_NAME[name](value))
        except (ValueError, TypeError, KeyError, ArithmeticError) as error:
            raise ConfigError(
                "The queue has records of a source of this name that is no database. Give the "
                f"database another name, NAME=URL. Received: the position {text!r}"
            ) from error

    def moved(self, value: Any) -> DatabasePosition:
        """Returns the position of the same query after a row with another value.

        Args:
            value: Value of the increasing column.
        """
        return dataclasses.replace(self, value=value)

    def check_same(self, now: DatabasePosition, *, new_query: bool) -> None:
        """Checks that a query goes on after this position.

        Args:
            now: Position with the query that is to be fed.
            new_query: Whether the text of the query may be another one.

        Raises:
            ConfigError: The query or the column is another one.
        """
        if now.after == self.after and (new_query or now.query == self.query):
            return
        go_on = "" if now.after != self.after else ", or add --new-query to read after the last row"
        raise ConfigError(
            f"The queue has rows of another query: {self.query!r} --after {self.after}. Feed with "
            f"that query, give the database another name (NAME=URL) to read from its first row"
            f"{go_on}. Received: {now.query!r} --after {now.after}"
        )

    def _as_text(self) -> tuple[str, str]:
        kind = type(self.value)
        if kind not in _TYPES or (kind is float and not math.isfinite(self.value)):
            raise DataError(
                f"The column {self.after} must have integers, finite numbers, text, times or "
                f"dates. Received: {self.value!r} of type {kind.__name__}"
            )
        name, to_text, _ = _TYPES[kind]
        return name, to_text(self.value)
