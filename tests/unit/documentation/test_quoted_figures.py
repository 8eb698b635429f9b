"""The numbers that pages quote are those of the results, if a comment names their figure."""

from __future__ import annotations

import pytest

from benchmarks.support.report import pages
from benchmarks.support.report.figures import figures

TFHYBRID = "<!-- step.tfhybrid -->"
WITH_FIGURES = [page for page in pages.pages() if pages.figures_named(page.read_text())]


def test_the_first_pages_of_a_visitor_quote_figures():
    names = {str(page.relative_to(pages.ROOT)) for page in WITH_FIGURES}
    assert names >= {"README.md", "docs/data.md", "docs/patent.md", "docs/several_hosts.md"}


@pytest.mark.parametrize("page", WITH_FIGURES, ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_a_page_quotes_what_the_results_say(page):
    text = page.read_text()
    assert pages.with_figures(text) == text, "run python -m benchmarks.support.report.pages"


@pytest.mark.parametrize("stars", ["", "**"])
@pytest.mark.parametrize("number", ["7", "1,234", "0.5", "12,345.67"])
def test_a_number_before_a_comment_is_replaced(number, stars):
    text = "| 3 | {}{}{} | 8,000 samples/s, 4"
    renewed = pages.with_figures(text.format(number, stars, TFHYBRID))
    assert renewed == text.format(figures()["step.tfhybrid"], stars, TFHYBRID)


def test_other_comments_are_left_alone():
    text = "5 <!-- settings --> 6<!-- end of settings -->\n"
    assert pages.with_figures(text) == text


def test_a_figure_that_no_result_has_is_an_error():
    with pytest.raises(ValueError, match=r"step\.nobody"):
        pages.with_figures("5<!-- step.nobody -->")


@pytest.mark.parametrize("before", ["samples/s ", "", "5 ", "5\n"])
def test_a_comment_that_follows_no_number_is_an_error(before):
    with pytest.raises(ValueError, match="does not follow a number"):
        pages.with_figures(before + TFHYBRID)
