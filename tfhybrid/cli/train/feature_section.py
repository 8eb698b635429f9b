"""Features in the YAML file of `tfhybrid train`: columns of the data, and layers over them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from tfhybrid.cli.train.settings_section import Count, Section, kind_of


class NormalizationSettings(Section):
    """Constants of `keras.layers.Normalization`."""

    mean: float = Field(description="Mean of the numbers.")
    variance: Annotated[float, Field(ge=0)] = Field(description="Variance of the numbers.")


class LayerSettings(Section):
    """Layer of a feature, from `tfhybrid.features`: one of these settings. `log` has none."""

    default: float | None = Field(None, description="Number in place of NaN.")
    clip: Annotated[list[int | float | None], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Smallest and largest number; null for no limit."
    )
    buckets: list[int | float] | None = Field(None, description="Ascending boundaries of buckets.")
    normalization: NormalizationSettings | None = Field(
        None, description="Mean and variance of the numbers, which become 0 and 1."
    )
    split: str | None = Field(
        None, description="Separator of the texts that requests send for a list of strings."
    )
    truncate: Count | None = Field(None, description="Maximum number of values of a list.")
    keep: Literal["first", "last"] | None = Field(
        None, description='Values that `truncate` keeps, by default the `"first"`.'
    )

    @model_validator(mode="after")
    def _check_one(self) -> LayerSettings:
        given = self.given().keys() - {"keep"}
        if len(given) != 1 or (self.keep and self.truncate is None):
            raise ValueError(
                f"a layer has one of {sorted(LayerSettings.model_fields.keys() - {'keep'})}, and "
                f"keep with truncate, not {sorted(self.given())}"
            )
        return self


class CrossSettings(Section):
    """Cross of features, `tfhybrid.features.Cross`."""

    cross: Annotated[list[str], Field(min_length=2)] = Field(
        description="Names of features with keys, of which each combination is a key."
    )
    num_bins: Count | None = Field(None, description="Number of different keys; default 2^63 - 1.")


def _kind(value: Any) -> str:
    return "layers" if isinstance(value, list) else kind_of(value)


LayerSpec = Annotated[
    Annotated[str, Tag("name")] | Annotated[LayerSettings, Tag("section")], Discriminator(kind_of)
]
FeatureSpec = Annotated[
    Annotated[str, Tag("name")]
    | Annotated[list[LayerSpec], Tag("layers"), Field(min_length=1)]
    | Annotated[CrossSettings, Tag("section")],
    Discriminator(_kind),
]
"""A column; a list of a column and layers; or a cross."""
