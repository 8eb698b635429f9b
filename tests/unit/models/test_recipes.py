"""One recipe for all tables of a model, or one for each feature."""

from __future__ import annotations

import inspect
import re

import pytest
from tensorflow import keras

import tfhybrid
from tfhybrid.checkpoint.dense import tables_of
from tfhybrid.errors import ConfigError

USER = tfhybrid.TableConfig(dim=4, optimizer=tfhybrid.optimizers.Adam(0.1), expected_rows=5000)
ITEM = tfhybrid.TableConfig(dim=4, admission=3)


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    ("model", "dim", "options"),
    [
        ("lr", 1, {}),
        ("deepfm", 5, {"hidden": [4]}),
        ("dlrm", 4, {"hidden": [4]}),
        ("din", 4, {"hidden": [4], "behaviours": {"seen": "item"}, "max_length": 7}),
    ],
)
def test_each_feature_has_the_table_of_its_recipe(model, dim, options) -> None:
    recipes = {"item": ITEM, "user": USER}  # in whatever order
    built = getattr(tfhybrid.models, model)(["user", "item"], table=recipes, **options)
    built.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    tables = tables_of(built)
    assert sorted(tables) == ["item", "user"]
    assert {table.dim for table in tables.values()} == {dim}
    assert tables["user"].config.expected_rows == 5000
    assert tables["user"].config.optimizer == USER.optimizer
    assert tables["item"].config.admission == tfhybrid.Admission(3)


@pytest.mark.parametrize(
    "table", [{"user": USER}, {"user": USER, "item": tfhybrid.TableConfig(dim=8)}, {}]
)
def test_a_recipe_that_is_missing_or_of_another_dim_is_refused(table) -> None:
    with pytest.raises(ConfigError, match=r"one for each of \['user', 'item'\], with equal dims"):
        tfhybrid.models.dnn(["user", "item"], table=table)


@pytest.mark.parametrize("features", ["user", [], ["user", "user"]])
def test_features_must_be_different_names(features) -> None:
    with pytest.raises(ConfigError, match=r"one or more different names\. Received: "):
        tfhybrid.models.fm(features, table=USER)


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("options", [{"hidden": [8, 0]}, {"dropout": 1.0}, {"dropout": -0.1}])
def test_layers_without_units_and_a_dropout_of_all_are_refused(options) -> None:
    with pytest.raises(
        ConfigError, match=r"at least 1, and dropout must be in \[0, 1\)\. Received: "
    ):
        tfhybrid.models.dnn(["user"], table=USER, **options)


@pytest.mark.parametrize("name", tfhybrid.models.__all__)
def test_help_describes_every_argument(name) -> None:
    build = getattr(tfhybrid.models, name)
    text = inspect.getdoc(build)
    assert "{{" not in text
    described = re.findall(
        r"^    (\w+): ", text.partition("Args:")[2].partition("Returns:")[0], re.M
    )
    assert described == [*inspect.signature(build).parameters]
