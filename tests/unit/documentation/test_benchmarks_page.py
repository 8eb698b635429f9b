"""The page of benchmarks says what the results say, and its figures are small."""

from __future__ import annotations

from benchmarks.support.report import __main__ as report


def test_the_page_is_that_of_the_results():
    assert report.PAGE.read_text() == report.page()


def test_every_chart_has_its_figure_and_a_side_of_ours():
    drawn = [*report.charts()]
    assert len({figure for *_, figure, _ in drawn}) == len(drawn) > 8
    for *_, figure, chart in drawn:
        assert figure.exists()
        assert chart.lanes or any(side.startswith("tfhybrid") for side in chart.bars)


def test_figures_are_small_and_their_text_is_text():
    for *_, figure, _ in report.charts():
        lines = figure.read_text().splitlines()
        assert len(lines) < 300, figure.name
        assert any("<text" in line for line in lines), figure.name
        assert "<metadata>" not in lines, figure.name
