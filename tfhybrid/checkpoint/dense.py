"""Conversion of a model's dense part to named arrays, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid._keras import path_of, state_of
from tfhybrid.checkpoint import random_state
from tfhybrid.checkpoint.random_state import RandomState
from tfhybrid.errors import CheckpointError
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.store import Table


def tables_of(model: keras.Model) -> dict[str, Table]:
    """Returns the tables of a model by name, including the tables of frozen layers."""
    proxies = [weight for weight in model.weights if isinstance(weight, TableProxy)]
    return {proxy.table.name: proxy.table for proxy in proxies}


def saved_tables_of(model: keras.Model) -> dict[str, Table]:
    """Returns a model's tables by name, and the tables of keys that wait for admission to them."""
    tables = tables_of(model)
    waiting = [table.waiting for table in tables.values() if table.waiting is not None]
    return tables | {table.name: table for table in waiting}


def variables_of(model: keras.Model) -> list[Any]:
    """Returns the variables of a model and its optimizer, trained or not, except tables.

    Args:
        model: Model that is built and compiled. Models built alike give the same order.
    """
    return [*_common(model), *state_of(model.optimizer), *_own(model)]


def gather(model: keras.Model) -> dict[str, np.ndarray]:
    """Returns the dense part of a model as named arrays; every rank must call it.

    Weights and optimizer are the same on every rank. Variables that gradients do not train
    (statistics of batch normalization, states of random generators) differ between ranks and are
    saved for each rank; so is the state of the process's random generators.
    """
    arrays = {
        **_named("weights", _common(model)),
        **_named("optimizer", state_of(model.optimizer)),
    }
    own = {**_named("own", _own(model)), **random_state.gather()}
    for rank, values in enumerate(distributed.allgather_object(own)):
        arrays |= {f"rank/{rank}/{name}": value for name, value in values.items()}
    return arrays


def names(model: keras.Model) -> dict[str, str]:
    """Returns the Keras path of each array of `gather`, by the array's name, for people to read.

    Needs no other rank, unlike `gather`.

    Args:
        model: Model that is built and compiled.
    """
    own = {f"rank/{rank}/own": _own(model) for rank in range(distributed.size())}
    groups = {"weights": _common(model), "optimizer": state_of(model.optimizer), **own}
    return {
        name: path_of(variable)
        for group, variables in groups.items()
        for name, variable in zip(_numbered(group, variables), variables, strict=True)
    }


@dataclasses.dataclass(frozen=True)
class Matched:
    """Variables of a model, each with the array that `assign` would give to the variable.

    Args:
        pairs: Variables, each with its array.
        random_state: States for the random generators of this process; `None` if another number of
            ranks saved them.
        optimizer: Whether the optimizer's variables are among the pairs.
    """

    pairs: list[tuple[Any, np.ndarray]]
    random_state: RandomState | None
    optimizer: bool

    def assign(self) -> None:
        """Assigns the arrays to the variables, and sets this process's random generators.

        The generators stay unchanged if `random_state` is `None`.
        """
        if self.random_state is not None:
            self.random_state.assign()
        for variable, value in self.pairs:
            variable.assign(value)


def match(
    model: keras.Model, arrays: dict[str, np.ndarray], ranks: int, *, optimizer: bool
) -> Matched:
    """Matches the arrays of `gather` with a model's variables, without changing anything.

    Args:
        model: Model, built like the one that was saved.
        arrays: Arrays by name.
        ranks: Number of ranks that saved. If this job has another number, all ranks take rank 0's
            per-rank variables, and the process's random generators stay unchanged.
        optimizer: Whether to match the optimizer's variables, too, unless other settings, such as
            `amsgrad`, gave the saved optimizer other variables.

    Returns:
        The variables with their arrays; `Matched.assign` then changes the model.

    Raises:
        CheckpointError: The arrays do not fit the model.
    """
    same_ranks = ranks == distributed.size()
    rank = distributed.rank() if same_ranks else 0
    state = state_of(model.optimizer)
    optimizer = optimizer and _fit(state, arrays, _saved("optimizer", arrays))
    pairs = [
        *_matched("weights", _common(model), arrays),
        *(_matched("optimizer", state, arrays) if optimizer else ()),
        *_matched(f"rank/{rank}/own", _own(model), arrays),
    ]
    random = RandomState.of(arrays, f"rank/{rank}/") if same_ranks else None
    return Matched(pairs, random, optimizer)


def _common(model: keras.Model) -> list[Any]:
    return [v for v in model.trainable_variables if not isinstance(v, TableProxy)]


def _own(model: keras.Model) -> list[Any]:
    return [v for v in model.non_trainable_variables if not isinstance(v, TableProxy)]


def _named(group: str, variables: list[Any]) -> dict[str, np.ndarray]:
    names = _numbered(group, variables)
    return {name: np.asarray(each) for name, each in zip(names, variables, strict=True)}


def _numbered(group: str, variables: list[Any]) -> list[str]:
    # By number: Keras generates other names when a model is built twice in a process.
    return [f"{group}/{i:04d}" for i in range(len(variables))]


def _saved(group: str, arrays: dict[str, np.ndarray]) -> list[str]:
    return sorted(name for name in arrays if name.startswith(f"{group}/"))


def _fit(variables: list[Any], arrays: dict[str, np.ndarray], saved: list[str]) -> bool:
    """Returns whether arrays have the shapes and types of variables, in the same order."""
    return _of_variables(variables) == _of_arrays(arrays, saved)


def _of_variables(variables: list[Any]) -> list[tuple[tuple[int, ...], str]]:
    return [(tuple(v.shape), tf.as_dtype(v.dtype).name) for v in variables]


def _of_arrays(
    arrays: dict[str, np.ndarray], saved: list[str]
) -> list[tuple[tuple[int, ...], str]]:
    return [(arrays[name].shape, str(arrays[name].dtype)) for name in saved]


def _matched(
    group: str, variables: list[Any], arrays: dict[str, np.ndarray]
) -> list[tuple[Any, np.ndarray]]:
    saved = _saved(group, arrays)
    if not _fit(variables, arrays, saved):
        expected, received = _of_variables(variables), _of_arrays(arrays, saved)
        raise CheckpointError(
            f"The checkpoint's {group} do not fit the model, which has {len(expected)} arrays "
            f"{expected}. Received: {len(received)} arrays {received}"
        )
    return [(variable, arrays[name]) for variable, name in zip(variables, saved, strict=True)]
