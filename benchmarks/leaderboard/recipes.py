"""How each model is trained, chosen on the validation split alone, and what was published."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorflow import keras

import tfhybrid
from tfhybrid import models


class Published(NamedTuple):
    """Test scores of BARS on Frappe_x1."""

    auc: float
    log_loss: float


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A model and how it is trained.

    All of them: dim 10, Adam, 4096 samples a step of all ranks, and as in Keras all rows at every
    step: there are 5,382. The learning rate falls to 0.3 of itself after each epoch without a
    better validation AUC, and training ends after three in a row.

    Args:
        build: Makes the model.
        published: What is to be reached.
        l2: Penalty of the tables: this times the squares of all rows.
        rate: Adam's learning rate, at first.
        options: Of the model.
    """

    build: Callable[..., keras.Model]
    published: Published
    l2: float
    rate: float
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def model(self, features: list[str]) -> keras.Model:
        """Builds and compiles the model."""
        table = tfhybrid.TableConfig(
            dim=10,
            initializer=tfhybrid.initializers.Normal(stddev=1e-4),
            regularizer=keras.regularizers.L2(self.l2),
            lazy=False,
        )
        model = self.build(features, table=table, **self.options)
        model.compile(
            optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(self.rate)),
            loss=keras.losses.BinaryCrossentropy(from_logits=True),
        )
        return model


def _shallow(build: Callable[..., keras.Model], auc: float, log_loss: float) -> Recipe:
    return Recipe(build, Published(auc, log_loss), l2=1e-5, rate=1e-2)


def _deep(build: Callable[..., keras.Model], auc: float, log_loss: float, **options: Any) -> Recipe:
    options = {"dropout": 0.4, "batch_norm": True} | options
    return Recipe(build, Published(auc, log_loss), l2=0.1, rate=1e-3, options=options)


RECIPES = {
    "LR": _shallow(models.lr, 0.9356, 0.3076),
    "FM": _shallow(models.fm, 0.9671, 0.2065),
    "DNN": _deep(models.dnn, 0.9833, 0.1622),
    "Wide & Deep": _deep(models.wide_deep, 0.9841, 0.1490),
    "DeepFM": _deep(models.deepfm, 0.9842, 0.1482),
    "DCN": _deep(models.dcn, 0.9839, 0.1527),
    "DCNv2": _deep(models.dcnv2, 0.9845, 0.1491),
    # Published with embeddings side by side, without their products: without dense columns that
    # is DNN's network, and comes to the same scores.
    "DLRM": _deep(models.dlrm, 0.9840, 0.1444, interaction="cat"),
}
