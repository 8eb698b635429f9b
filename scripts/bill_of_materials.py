"""Writes the bill of materials of a release: the packages that training needs, as CycloneDX.

    python scripts/bill_of_materials.py ENVIRONMENT VERSION

ENVIRONMENT is what `cyclonedx-py environment` wrote about this interpreter's environment, which
also has the tools of developers. Prints the part of it that tfhybrid and Horovod require, with
what those packages require in turn.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

PACKAGES = ("tfhybrid", "horovod")  # tfhybrid's metadata cannot require Horovod: see pyproject.toml


def normalized(name: str) -> str:
    """Returns a package's name as PEP 503 spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed() -> set[str]:
    """Returns the normalized names of all packages that training needs, without those of extras."""
    names: set[str] = set()
    ahead = [*PACKAGES]
    while ahead:
        name = normalized(ahead.pop())
        if name not in names:
            names.add(name)
            ahead += [each.name for each in _requirements(name)]
    return names


def _requirements(name: str) -> list[Requirement]:
    """Returns what an installed package requires here."""
    requirements = map(Requirement, metadata.requires(name) or [])
    return [
        each for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})
    ]


def bill_of_materials(environment: dict[str, Any], version: str) -> dict[str, Any]:
    """Returns the part of an environment's bill of materials that training needs.

    Args:
        environment: Bill of materials of the whole environment.
        version: Version of tfhybrid.
    """
    names = needed()
    components = [each for each in environment["components"] if normalized(each["name"]) in names]
    components = [_without_paths(each) for each in components if each["name"] != "tfhybrid"]
    missing = names - {normalized(each["name"]) for each in components} - {"tfhybrid"}
    if missing:
        sys.exit(f"The environment's bill of materials lacks {', '.join(sorted(missing))}.")
    root = {**environment["metadata"]["component"], "version": version}
    root["purl"] = f"pkg:pypi/tfhybrid@{version}"
    references = {root["bom-ref"], *(each["bom-ref"] for each in components)}
    dependencies = [
        {**each, "dependsOn": [other for other in each.get("dependsOn", []) if other in references]}
        for each in environment["dependencies"]
        if each["ref"] in references
    ]
    return {
        **environment,
        "metadata": {**environment["metadata"], "component": root},
        "components": components,
        "dependencies": dependencies,
    }


def _without_paths(component: dict[str, Any]) -> dict[str, Any]:
    """Returns a component without the folders of this machine that it was installed from."""
    references = component.get("externalReferences", [])
    elsewhere = [each for each in references if not each["url"].startswith("file:")]
    return {**component, "externalReferences": elsewhere}


def main(environment: str, version: str) -> None:
    """Prints the bill of materials."""
    content = json.loads(Path(environment).read_text())
    json.dump(bill_of_materials(content, version), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
