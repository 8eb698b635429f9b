"""Checks of an update: whether it can be applied, and whether the weights stay finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from tfhybrid.core.native import OptimizerKind
from tfhybrid.errors import ConfigError, DataError
from tfhybrid.stream.weights.finite_rows import first_not_finite
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec
from tfhybrid.stream.weights.weight_update import WeightUpdate

_INTEGERS = range(1 << 63)  # of positions, fences, versions and numbers of rows
_TIMES = range(-(1 << 63) + 1, 1 << 63)  # the lowest int64 stands for an unknown time
# Half of the distance between the two largest numbers of float32. What is smaller can be added to
# any finite number without overflow.
_SMALL = 2.0**103
_SQUARABLE = 2.0**63  # the square of a smaller number is finite in float32


def check_fields(update: WeightUpdate) -> None:
    """Checks the fields of an update that do not depend on the model.

    Args:
        update: Update from a trainer, or from a journal.

    Raises:
        DataError: A field has another type or an impossible value, or the range is empty.
    """
    names = ("model", "queue", "trainer")
    texts = {name: getattr(update, name) for name in names}
    numbers = {name: getattr(update, name) for name in ("fence", "rows", "version")}
    for name, position in (("begin", update.begin), ("end", update.end)):
        numbers |= {f"{name}.{part}": each for part, each in position._asdict().items()}
    wrong = {name: text for name, text in texts.items() if not isinstance(text, str)}
    wrong |= {name: each for name, each in numbers.items() if not _is_integer(each, _INTEGERS)}
    if update.event_time is not None and not _is_integer(update.event_time, _TIMES):
        wrong["event_time"] = update.event_time
    if not isinstance(update.rates, Mapping):
        wrong["rates"] = update.rates
    if wrong:
        raise DataError(
            f"An update must have the texts {list(names)}, the integers {list(numbers)} from 0 to "
            "below 2**63, an event_time of int64 or none, and rates by table. "
            f"Received: {wrong}"
        )
    if update.begin >= update.end:
        raise DataError(
            "The range of an update must have rows. Received: from "
            f"{tuple(update.begin)} until before {tuple(update.end)}"
        )
    _check_observed(update)


def _is_integer(value: object, of: range) -> bool:
    return type(value) is int and value in of


def _check_observed(update: WeightUpdate) -> None:
    try:
        observed = update.observations
        counts = [*observed.times.values(), *(n for pair in observed.scores.values() for n in pair)]
        good = all(count in _INTEGERS for count in counts)
        good = good and all(second in _TIMES for second in observed.times)
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"The observations of an update are malformed: {error!r}") from error
    if not good:
        raise DataError(
            "Observations must count rows by times of int64. Received: "
            f"{str(dict(update.observed))[:200]}"
        )


def check_shapes(spec: ModelSpec, update: WeightUpdate) -> None:
    """Checks that an update has what the model needs. What passes can be applied.

    Args:
        spec: Specification of the model.
        update: Update whose fields are checked already.

    Raises:
        ConfigError: A table or a learning rate is missing, or arrays do not have the model's dims.
    """
    tables = spec.all_tables
    missing = [
        name
        for name, table in tables.items()
        if not table.adds and not _is_rate(update.rates.get(name))
    ]
    if missing:
        raise ConfigError(
            "An update must have a finite learning rate for each table with an optimizer, but "
            f"has none for {missing}. Received: {dict(update.rates)}"
        )
    nothing = np.empty(())
    for name, table in tables.items():
        keys, values = update.keys.get(name, nothing), update.values.get(name, nothing)
        if keys.ndim != 1 or values.shape != (len(keys), table.dim):
            raise ConfigError(
                "An update must have keys [n] and values [n, dim] of each table, with the dims "
                f"{ {each: of.dim for each, of in tables.items()} }. Received: keys and values of "
                f"the shapes {_shapes(update)}"
            )


def _is_rate(rate: object) -> bool:
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        return False
    return abs(rate) <= float(np.finfo(np.float32).max)


def _shapes(update: WeightUpdate) -> dict[str, list[tuple[int, ...]]]:
    return {
        name: [of[name].shape for of in (update.keys, update.values) if name in of]
        for name in sorted({*update.keys, *update.values})
    }


def check_numbers(spec: ModelSpec, update: WeightUpdate) -> bool:
    """Checks the types and values of an update's arrays and rates.

    Args:
        spec: Specification of the model.
        update: Update whose shapes are checked already.

    Returns:
        Whether deltas are so large that a row could overflow; then `check_sums` must follow.

    Raises:
        ConfigError: There is an unknown table, a type is wrong, a value is not finite, a rate is
            negative, or a gradient is too large for the table's optimizer.
    """
    tables = spec.all_tables
    unknown = sorted({*update.keys, *update.values} - set(tables))
    if unknown:
        raise ConfigError(
            f"An update must be of the model's tables {sorted(tables)}. Received: {unknown}"
        )
    are_large = [
        _check_table(name, table, update.keys[name], update.values[name], update.rates.get(name))
        for name, table in tables.items()
    ]
    return any(are_large)


def _check_table(
    name: str, table: TableSpec, keys: np.ndarray, values: np.ndarray, rate: float | None
) -> bool:
    """Checks the numbers of one table; returns whether a row could overflow by its deltas."""
    if keys.dtype != np.int64 or values.dtype != np.float32:
        raise ConfigError(
            f"Keys must be int64 and values float32. Received: {keys.dtype} and {values.dtype} of "
            f"table '{name}'"
        )
    if table.adds or rate is None:
        rate = 1.0
    if rate < 0:
        raise ConfigError(
            f"A learning rate must not be negative. Received: {rate} for table '{name}'"
        )
    largest = _bound(values)
    squares = not table.adds and table.settings["kind"] != OptimizerKind.SGD
    if largest * rate < _SMALL and not (squares and largest >= _SQUARABLE):
        return False
    _check_finite(name, keys, values)
    if not table.adds:
        raise ConfigError(
            "The optimizer of a table must be able to keep its rows finite. Received: a gradient "
            f"of {largest} with the learning rate {rate} for table '{name}'"
        )
    return True


def _bound(values: np.ndarray) -> float:
    """Returns a number that no value exceeds, NaN if a value is; exact if it is large."""
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = float(np.dot(flat, flat))  # one fast pass, which no NaN or large value survives
    if squares < _SQUARABLE**2:
        return math.sqrt(squares)
    return float(max(values.max(), -values.min()))


def check_sums(
    spec: ModelSpec, update: WeightUpdate, read: Callable[[str, np.ndarray], np.ndarray]
) -> None:
    """Checks that rows stay finite when deltas are added. No other update may be applied before.

    Args:
        spec: Specification of the model.
        update: Update whose numbers are checked already.
        read: Function from the name of a table and keys to their rows now.

    Raises:
        ConfigError: A row would not be finite.
    """
    for name, table in spec.all_tables.items():
        keys = update.keys[name]
        if table.adds and len(keys):
            with np.errstate(over="ignore"):
                sums = read(name, keys) + update.values[name]
            _check_finite(name, keys, sums, "The rows of a table with an update added")


def _check_finite(
    table: str, keys: np.ndarray, rows: np.ndarray, subject: str = "The values of an update"
) -> None:
    if bad := first_not_finite(keys, rows):
        key, values = bad
        raise ConfigError(
            f"{subject} must be finite. Received: key {key} of table '{table}' has {values}"
        )
