from __future__ import annotations

import pytest

from tfhybrid.core.passes import PassStats
from tfhybrid.monitoring.report import PassReport


@pytest.mark.parametrize("counters", [PassStats(requested=7), PassReport(requested=7)])
def test_the_old_name_of_a_counter_warns_and_names_the_new_one(counters):
    with pytest.warns(DeprecationWarning, match="is now called .*requested"):
        assert counters.asked == 7
