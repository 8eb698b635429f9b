"""The dashboard: what Grafana would pass over, and queries of metrics that are not there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tfhybrid.monitoring.metrics import OF_HOST, OF_JOB, PREFIX

DASHBOARD = Path(__file__).parents[2] / "examples/project/dashboards/grafana.json"
METRICS = {
    PREFIX + metric.name + "_total" * (metric.kind == "counter"): metric.label
    for metric in (*OF_JOB, *OF_HOST)
}


@pytest.fixture
def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text())


def test_grafana_knows_every_field(dashboard: dict[str, Any]) -> None:
    """Read and written by Grafana's own types of dashboards, nothing is lost or changed."""
    register_default_plugins()
    written = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
    assert lost(dashboard, written) == []
    dashboard["panels"][0]["titel"] = "?"
    assert lost(dashboard, written) == ["/panels/0/titel"]


def lost(wanted: Any, found: Any, place: str = "") -> list[str]:
    """Returns the places at which `found` has not what `wanted` has; it may have more."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            each
            for name, value in wanted.items()
            for each in lost(value, found.get(name, "nothing"), f"{place}/{name}")
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [each for i, pair in pairs for each in lost(*pair, f"{place}/{i}")]
    return [] if wanted == found else [place]


def test_every_query_is_of_metrics_that_are_told(dashboard: dict[str, Any]) -> None:
    queried = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "5m")
            promql_parser.parse(query)  # or it raises
            names = set(re.findall(rf"{PREFIX}\w+", query))
            assert names <= METRICS.keys()
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) - {"instance"}
            assert shown <= {METRICS[name] for name in names}
            queried |= names
    assert METRICS.keys() - queried == {f"{PREFIX}resumed_step"}
    with pytest.raises(ValueError, match=r"\S"):
        promql_parser.parse("rate(tfhybrid_samples_total[5m)")


def test_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
