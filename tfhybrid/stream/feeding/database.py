"""Rows of a query of a database, in the order of an increasing column.

Importing this module raises `UnsupportedError` if SQLAlchemy is not installed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from tfhybrid.errors import ConfigError, DataError, StreamError, UnsupportedError

try:
    import sqlalchemy
    from sqlalchemy import exc
except ImportError as error:
    raise UnsupportedError("Databases need: pip install 'tfhybrid[databases]'") from error

# Rows that are read at once where they have the same value of the increasing column.
_MAX_ROWS = 1_000_000

_NAMED = re.compile(r"([A-Za-z][\w.-]*)=(.*)", re.DOTALL)


class QueryRows(NamedTuple):
    """Rows of a query, in the order of its increasing column.

    Attributes:
        rows: Values of the declared columns, one tuple for each row.
        last: Value of the increasing column in the last row.
    """

    rows: Sequence[Sequence[Any]]
    last: Any


class Database:
    """A query of a database. Connects when it is used; the caller closes it. Not thread-safe.

    All comparisons of values are the database's. Errors do not show passwords.

    Args:
        address: URL of the database, as SQLAlchemy takes it, or `NAME=URL`.
        query: A query without parameters.
        after: Name of the increasing column of the query.
        columns: Names of the query's columns that are read.

    Attributes:
        name: Name of the database, by default its URL without user, password and options.
        query: The query.
        after: Name of the increasing column.
        columns: Names of the columns that are read.

    Raises:
        ConfigError: The URL is not valid, names an unknown kind of database, or an SQLite file that
            does not exist.
        UnsupportedError: The driver of the database is not installed.
    """

    def __init__(self, address: str, query: str, after: str, columns: Sequence[str]) -> None:
        match = _NAMED.fullmatch(address)
        self._url = _parsed(match[2] if match else address)
        self.name = match[1] if match else _plain_name(self._url)
        self.query = query
        self.after = after
        self.columns = tuple(columns)
        self._names = list(dict.fromkeys((after, *columns)))
        try:
            self._engine = sqlalchemy.create_engine(self._url, pool_pre_ping=True)
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                f"{self.name}: the Python package {error.name} is needed for this kind of database"
            ) from error
        except (exc.SQLAlchemyError, TypeError, ValueError) as error:
            raise ConfigError(f"{self.name}: {self._shown(error)}") from None
        if self._url.get_backend_name() == "sqlite":
            sqlalchemy.event.listen(self._engine, "connect", _decode_any_text)

    def nulls(self) -> int:
        """Returns the number of rows without a value in the increasing column: they are not read.

        Raises:
            ConfigError: The query is not valid, or lacks a column, or has it twice.
            StreamError: The database does not answer.
        """
        source = self._source("query_rows")
        is_null = source.c[self.after].is_(None)
        with self._connected() as connection:
            self._check_columns(connection)
            return _count(connection, source, is_null)

    def newest(self, value: Any) -> Any:
        """Returns the greatest value of the increasing column.

        Args:
            value: Value that it must exceed; `None` for no bound.

        Returns:
            The value; `None` if no row exceeds the bound.

        Raises:
            ConfigError: The query is not valid, or lacks a column, or has it twice.
            StreamError: The database does not answer.
        """
        source = self._source("query_rows")
        column = source.c[self.after]
        statement = sqlalchemy.select(column).where(_beyond(column, value))
        with self._connected() as connection:
            self._check_columns(connection)
            return connection.scalar(statement.order_by(column.desc()).limit(1))

    def count(self, value: Any, newest: Any) -> int:
        """Returns the number of rows between two values of the increasing column.

        Args:
            value: Value that they exceed; `None` for no bound.
            newest: Value that they do not exceed.

        Raises:
            ConfigError: The query is not valid.
            StreamError: The database does not answer.
        """
        source = self._source("query_rows")
        column = source.c[self.after]
        with self._connected() as connection:
            return _count(connection, source, _beyond(column, value), column <= newest)

    def rows(self, value: Any, newest: Any, count: int) -> QueryRows | None:
        """Reads the next rows. Rows of the same value are read together.

        Args:
            value: Value of the increasing column that they exceed; `None` for no bound.
            newest: Value that they do not exceed.
            count: Number of rows, apart from further ones with the value of the last.

        Returns:
            The rows; `None` if there is none.

        Raises:
            ConfigError: The query is not valid.
            DataError: Python does not hold the values exactly, or too many rows have the same one.
            StreamError: The database does not answer.
        """
        with self._connected() as connection:
            result = connection.execute(self._next_rows(value, newest, count)).all()
        if not result:
            if value != newest and self.newest(value) == newest:
                raise self._inexact(newest)
            return None
        if len(result) > max(count, _MAX_ROWS):
            raise DataError(
                f"{self.name}: at most {_MAX_ROWS} rows may have the same value of {self.after}. "
                f"Choose a column with more values. Received: more rows with {result[-1][0]!r}"
            )
        if result[0][0] == value:
            raise self._inexact(value)
        return QueryRows([row[1:] for row in result], result[-1][0])

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()

    def _next_rows(self, value: Any, newest: Any, count: int) -> Any:
        """Returns the statement of `rows`. The database finds the end: it knows what is equal."""
        source, ahead = self._source("query_rows"), self._source("rows_ahead")
        column, other = source.c[self.after], ahead.c[self.after]
        cut = sqlalchemy.select(other).where(_beyond(other, value), other <= newest)
        cut = cut.order_by(other).offset(count - 1).limit(1)
        end = sqlalchemy.func.coalesce(cut.scalar_subquery(), newest)
        chosen = [source.c[name].label(f"column_{i}") for i, name in enumerate(self.columns)]
        return (
            sqlalchemy.select(column.label("increasing"), *chosen)
            .where(_beyond(column, value), column <= end)
            .order_by(column)
            .limit(max(count, _MAX_ROWS) + 1)
        )

    def _inexact(self, value: Any) -> DataError:
        return DataError(
            f"{self.name}: the column {self.after} must have values that Python holds exactly. "
            "Convert them in the query, for example to double precision or to text. Received: "
            f"{value!r}, which the database finds less than what it has"
        )

    def _source(self, alias: str) -> Any:
        """Returns the query as a table."""
        text = self.query.strip().removesuffix(";").replace(":", r"\:") + "\n"  # ends a comment
        columns: list[Any] = [sqlalchemy.column(name) for name in self._names]
        return sqlalchemy.text(text).columns(*columns).subquery(alias)

    def _check_columns(self, connection: Any) -> None:
        everything = sqlalchemy.select(sqlalchemy.text("*")).select_from(self._source("query_rows"))
        names = list(connection.execute(everything.limit(0)).keys())
        wrong = [name for name in self._names if names.count(name) != 1]
        if wrong:
            raise ConfigError(
                f"{self.name}: the query must return the columns {wrong} once. Received: {names}"
            )

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError) as error:
            raise StreamError(f"{self.name}: {self._shown(error)}") from None
        except (exc.SQLAlchemyError, UnicodeError) as error:
            raise ConfigError(f"{self.name}: {self._shown(error)}") from None

    def _shown(self, error: Exception) -> str:
        """Returns the text of an error, in one line, without secrets of the URL."""
        text = " ".join(str(getattr(error, "orig", None) or error).split())
        options = {name: value for name, value in self._url.query.items() if "pass" in name.lower()}
        for secret in (self._url.password, *options.values()):
            for form in {secret, quote(str(secret)), quote_plus(str(secret))} if secret else ():
                text = text.replace(str(form), "***")
        return text


def _parsed(text: str) -> sqlalchemy.URL:
    try:
        url = sqlalchemy.make_url(text)
    except (exc.ArgumentError, ValueError):
        raise ConfigError(
            "The address of a database must be a URL of SQLAlchemy, such as "
            "postgresql://user@host/database, or NAME=URL. Received: another text, not shown "
            "because it may hold a password"
        ) from None
    file = url.database or ""
    if url.get_backend_name() == "sqlite" and not file.startswith("file:"):
        if not Path(file).is_file():
            raise ConfigError(f"The SQLite database {file!r} must exist. Received: no such file")
        url = url.set(database=str(Path(file).absolute()))
    return url


def _plain_name(url: sqlalchemy.URL) -> str:
    backend = url.get_backend_name()
    plain = sqlalchemy.URL.create(backend, host=url.host, port=url.port, database=url.database)
    return plain.render_as_string()


def _count(connection: Any, source: Any, *conditions: Any) -> int:
    count = sqlalchemy.select(sqlalchemy.func.count()).select_from(source)
    return int(connection.scalar(count.where(*conditions)) or 0)


def _beyond(column: Any, value: Any) -> Any:
    return column.is_not(None) if value is None else column > value


def _decode_any_text(connection: Any, _: Any) -> None:
    """Makes SQLite return text that is no UTF-8, which a check of the values finds."""
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")
