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

    All of them: dim 10, Adam on both sides, 4096 samples a step of all ranks; the learning rate
    falls to a tenth after an epoch without a better validation AUC, and training ends after two in
    a row, as in the published runs.

    Args:
        build: Makes the model.
        published: What is to be reached.
        l2: Penalty of the tables: this times the squares of the rows of a step.
        rate: Adam's learning rate.
        options: Of the model.
    """

    build: Callable[..., keras.Model]
    published: Published
    l2: float
    rate: float = 1e-3
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def model(self, features: list[str]) -> keras.Model:
        """Builds and compiles the model."""
        table = tfhybrid.TableConfig(
            dim=10,
            initializer=tfhybrid.initializers.Normal(1e-4),
            regularizer=keras.regularizers.L2(self.l2) if self.l2 else None,
        )
        model = self.build(features, table=table, **self.options)
        model.compile(
            optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(self.rate)),
            loss=keras.losses.BinaryCrossentropy(from_logits=True),
        )
        return model


_DEEP = {"dropout": 0.2, "batch_norm": True}
RECIPES = {
    "LR": Recipe(models.lr, Published(0.9356, 0.3076), 0.0),
    "FM": Recipe(models.fm, Published(0.9671, 0.2065), 0.0),
    "DNN": Recipe(models.dnn, Published(0.9833, 0.1622), 0.1, options=_DEEP),
    "Wide & Deep": Recipe(models.wide_deep, Published(0.9841, 0.1490), 0.1, options=_DEEP),
    "DeepFM": Recipe(models.deepfm, Published(0.9842, 0.1482), 0.1, options=_DEEP),
    "DCN": Recipe(models.dcn, Published(0.9839, 0.1527), 0.1, options=_DEEP),
    "DCNv2": Recipe(models.dcnv2, Published(0.9845, 0.1491), 0.1, options={"dropout": 0.2}),
    "DLRM": Recipe(models.dlrm, Published(0.9840, 0.1444), 0.1, options=_DEEP),
}
