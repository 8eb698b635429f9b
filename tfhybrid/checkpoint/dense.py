"""The dense side of a model as named arrays, and back."""

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
from tfhybrid.layers import TableProxy
from tfhybrid.store import Table


def tables_of(model: keras.Model) -> dict[str, Table]:
    """Returns the tables of a model by name, frozen ones too."""
    proxies = [weight for weight in model.weights if isinstance(weight, TableProxy)]
    return {proxy.table.name: proxy.table for proxy in proxies}


def saved_tables_of(model: keras.Model) -> dict[str, Table]:
    """Returns the tables of a model and those of keys that wait for admission to them."""
    tables = tables_of(model)
    waiting = [table.waiting for table in tables.values() if table.waiting is not None]
    return tables | {table.name: table for table in waiting}


def variables_of(model: keras.Model) -> list[Any]:
    """Returns all variables but tables, in an order that follows from how the model is built."""
    return [*_common(model), *state_of(model.optimizer), *_own(model)]


def gather(model: keras.Model) -> dict[str, np.ndarray]:
    """Returns all that is dense, as rank 0 will write it; every rank must call it.

    Weights and optimizer are the same on every rank. What is not trained by gradients (statistics
    of batch normalisation, states of random generators) is each rank's own, and kept by rank; so is
    the state of the process's random generators.
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
    """Returns what Keras calls the variables behind the arrays of `gather`, for people."""
    own = {f"rank/{rank}/own": _own(model) for rank in range(distributed.size())}
    groups = {"weights": _common(model), "optimizer": state_of(model.optimizer), **own}
    return {
        name: path_of(variable)
        for group, variables in groups.items()
        for name, variable in zip(_numbered(group, variables), variables, strict=True)
    }


@dataclasses.dataclass(frozen=True)
class Matched:
    """Arrays that fit a model, and its variables."""

    pairs: list[tuple[Any, np.ndarray]]
    random_state: RandomState | None

    def assign(self) -> None:
        """Gives the model the arrays, and the process the random states."""
        if self.random_state is not None:
            self.random_state.assign()
        for variable, value in self.pairs:
            variable.assign(value)


def match(
    model: keras.Model, arrays: dict[str, np.ndarray], ranks: int, *, optimizer: bool
) -> Matched:
    """Finds for what `gather` returned the variables of a model, and changes nothing.

    Args:
        model: Built as the one that was saved.
        arrays: By name.
        ranks: Number of ranks that saved; with another number of them, all take rank 0's own
            variables, and the process's random generators stay as they are.
        optimizer: Whether the optimizer takes its variables too.

    Raises:
        CheckpointError: The arrays do not fit the model.
    """
    same_ranks = ranks == distributed.size()
    rank = distributed.rank() if same_ranks else 0
    pairs = [
        *_matched("weights", _common(model), arrays),
        *(_matched("optimizer", state_of(model.optimizer), arrays) if optimizer else ()),
        *_matched(f"rank/{rank}/own", _own(model), arrays),
    ]
    return Matched(pairs, RandomState.of(arrays, f"rank/{rank}/") if same_ranks else None)


def _common(model: keras.Model) -> list[Any]:
    return [v for v in model.trainable_variables if not isinstance(v, TableProxy)]


def _own(model: keras.Model) -> list[Any]:
    return [v for v in model.non_trainable_variables if not isinstance(v, TableProxy)]


def _named(group: str, variables: list[Any]) -> dict[str, np.ndarray]:
    names = _numbered(group, variables)
    return {name: np.asarray(each) for name, each in zip(names, variables, strict=True)}


def _numbered(group: str, variables: list[Any]) -> list[str]:
    # By number: the names that Keras makes up differ when a model is built twice in a process.
    return [f"{group}/{i:04d}" for i in range(len(variables))]


def _matched(
    group: str, variables: list[Any], arrays: dict[str, np.ndarray]
) -> list[tuple[Any, np.ndarray]]:
    saved = sorted(name for name in arrays if name.startswith(f"{group}/"))
    wanted = [(tuple(v.shape), tf.as_dtype(v.dtype).name) for v in variables]
    found = [(arrays[name].shape, str(arrays[name].dtype)) for name in saved]
    if wanted != found:
        raise CheckpointError(
            f"The checkpoint's {group} do not fit the model: wanted {len(wanted)} arrays {wanted}. "
            f"Received: {len(found)} arrays {found}"
        )
    return [(variable, arrays[name]) for variable, name in zip(variables, saved, strict=True)]
