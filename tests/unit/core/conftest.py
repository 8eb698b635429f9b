"""What tests of announced passes share."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.core.announced_passes import CASES, Without, trained


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Without:
    """Tells what was found without passes."""
    found: dict[tuple[int, str], list[np.ndarray]] = {}

    def find(hosts: int, case: str) -> list[np.ndarray]:
        if (hosts, case) not in found:
            directory = tmp_path_factory.mktemp("without")
            found[hosts, case], _ = trained(directory, range(hosts), 0, CASES[case])
        return found[hosts, case]

    return find
