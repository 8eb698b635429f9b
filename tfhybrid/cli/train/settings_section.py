"""The base class of the sections of the YAML file of `tfhybrid train`."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
NonNegative = Annotated[float, Field(ge=0)]

Checked = TypeVar("Checked", bound="Section")


class Section(BaseModel):
    """Section of the YAML file of settings. Unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def given(self) -> dict[str, Any]:
        """Returns the fields of this section that the YAML file sets, as a dict by field name.

        Leaves out `name`, and fields that the file sets to null.
        """
        values = {name: getattr(self, name) for name in self.model_fields_set - {"name"}}
        return {name: value for name, value in values.items() if value is not None}


def kind_of(value: Any) -> str:
    """Returns the tag of a setting that is a name or a section: `"name"` or `"section"`.

    Args:
        value: Value in the file.
    """
    return "section" if isinstance(value, dict | Section) else "name"


def checked_options(section: Checked, name: str, allowed: set[str], what: str) -> Checked:
    """Returns a section, if the file sets none but allowed fields.

    Args:
        section: Section that names one of several kinds, such as an optimizer.
        name: Name of the kind.
        allowed: Fields that this kind has.
        what: Noun for the error, such as "optimizer".

    Raises:
        ValueError: The file sets another field.
    """
    if unknown := sorted(section.given().keys() - allowed):
        raise ValueError(f"the {what} {name} takes {sorted(allowed)}, not {unknown}")
    return section
