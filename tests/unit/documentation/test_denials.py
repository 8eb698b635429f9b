"""What pages deny does not exist: each denial names what would make it untrue (`claim_markers`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.support.report import pages
from tests.unit.documentation import claim_markers
from tests.unit.documentation.claim_markers import ROOT, Marker, MarkerError

LIMITS = (ROOT / "docs" / "limits.md").read_text()
CLAIMS = (ROOT / "docs" / "patent.md").read_text()
CANNOT = "\n## What it cannot do\n"
DENIALS = [
    # The columns of the code and of the differences: what a claim itself says denies nothing.
    *claim_markers.denials(CLAIMS.partition(CANNOT)[0], columns=(1, 3)),
    *claim_markers.statements(CLAIMS.partition(CANNOT)[2]),
    *claim_markers.statements(LIMITS),
]
MARKED = [page for page in pages.pages() if claim_markers.markers(page.read_text())]


def short(text: str) -> str:
    """Returns the beginning of a row or an item, as the name of a test."""
    return text.lstrip("|- ")[:50]


def false(page: str) -> list[str]:
    """Returns the conditions under which a page may not say what it says."""
    return [each.condition for each in claim_markers.markers(page) if not each.holds()]


def test_pages_deny_much():
    assert CANNOT in CLAIMS
    assert len(claim_markers.statements(LIMITS)) >= 25
    assert len(DENIALS) >= 50
    assert {page.name for page in MARKED} >= {"limits.md", "patent.md"}


@pytest.mark.parametrize("denial", DENIALS, ids=short)
def test_a_denial_says_what_would_make_it_untrue(denial):
    assert claim_markers.unmarked([denial]) == [], "add <!-- untrue if: ... -->, see claim_markers"


@pytest.mark.parametrize("page", MARKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_pages_deny_does_not_exist(page: Path):
    assert false(page.read_text()) == []


# A thing that exists, and the same with a name that does not.
EXIST = [
    ("tfhybrid.layers.Embedding", "tfhybrid.layers.Embeddings"),
    ("tfhybrid.optimizers.Ada*", "tfhybrid.optimizers.Lam*"),
    ("tfhybrid.stream.trainer.online.Online", "tfhybrid.stream.trainer.online.Offline"),
    ("tfhybrid.TableConfig(storage=)", "tfhybrid.TableConfig(shelf=)"),
    ("tfhybrid.Sharded(*=)", "tfhybrid.Replicated(*=)"),
    ("tfhybrid.data.from_nodes(*stale*=)", "tfhybrid.data.from_nodes(*fresh*=)"),
    ("tfhybrid.Table.lookup", "tfhybrid.Table.lock"),
    ("tfhybrid train", "tfhybrid untrain"),
    ("tfhybrid nodes drain", "tfhybrid nodes flood"),
    ("tfhybrid nodes status --json", "tfhybrid nodes status --yaml"),
    ("stream.yaml: policies", "stream.yaml: politics"),
    ("stream.yaml: publish.auc_*", "stream.yaml: publish.loss_*"),
    ("cluster.yaml: roles.shards", "cluster.yaml: roles.shares"),
    ("model.yaml: *model*", "model.yaml: *muddle*"),
    ("benchmarks/results/step.json", "benchmarks/results/steps.json"),
    ("custom_ops/**/*.cc", "custom_ops/**/*.cu"),
    ("docs/limits.md says '# Limits'", 'docs/limits.md says "# No limits"'),
    (
        'tfhybrid/config/table_config.py says "lazy=False each step would read and write all of"',
        'tfhybrid/config/table_config.py says "lazy=False; each step may read"',
    ),
    (
        "tests/native/compute/row_policy_test.cc::FrequencyAndNorm",
        "tests/native/compute/row_policy_test.cc::Frequency",
    ),
    (
        "tests/unit/documentation/test_denials.py::test_pages_deny_much",
        "tests/unit/documentation/test_denials.py::test_pages",
    ),
]


@pytest.mark.parametrize(("there", "missing"), EXIST)
def test_a_page_that_denies_what_exists_is_found(there, missing):
    page = "| Not there | Instead |\n| --- | --- |\n| A table of {0} | wait <!-- {1}: {2} --> |\n"
    assert false(page.format("things", "untrue if", there)) == [there]
    assert false(page.format("things", "untrue if", missing)) == []
    assert false(page.format("things", "true while", there)) == []
    assert false(page.format("things", "true while", missing)) == [missing]


@pytest.mark.parametrize(
    "condition",
    [
        "tfhybrid.TableConfigg(foo=)",
        "tfhybrid.layres.Embedding",
        "tfhybrid.__version__(foo=)",
        "tfhybrid nods add",
        "tfhybrid nodes ad --force",
        "tfhybrid train --check --force now",
        "streams.yaml: policies",
        "stream.yaml: publisher.seconds",
        "benchmarks/result/gpu.json",
        'tfhybrid/no_such_file.py says "not there"',
        "tests/unit/test_no_such_file.py::test_it",
        "TableConfig(foo=)",
        "a second server",
    ],
)
def test_a_condition_that_can_never_be_judged_is_an_error(condition):
    with pytest.raises(MarkerError):
        Marker(claim_markers.UNTRUE_IF, condition).holds()


@pytest.mark.parametrize("comment", ["untrue if tfhybrid.Foo", "untrue if: ", "true while:a/b"])
def test_a_comment_that_looks_like_a_condition_and_is_none_is_an_error(comment):
    with pytest.raises(MarkerError):
        claim_markers.markers(f"- No such thing. <!-- {comment} -->")


def test_a_comment_may_name_several_conditions():
    text = "a <!-- untrue if: tfhybrid.Foo; tfhybrid.Bar --> b <!-- true while: a/b says 'c; d' -->"
    assert [(each.kind, each.condition) for each in claim_markers.markers(text)] == [
        ("untrue if", "tfhybrid.Foo"),
        ("untrue if", "tfhybrid.Bar"),
        ("true while", "a/b says 'c; d'"),
    ]


PAGE = """# A page

It is not a list, and says nothing.

- No such thing,
  and none of that. <!-- untrue if: tfhybrid.elastic -->
- Something that cannot be.

| Claim | Code | Difference |
| --- | --- | --- |
| It never stops | `a.py` | As claimed |
| It stops | not there | |
| It ends <!-- untrue if: tfhybrid.end --> | `a.py` | Never <!-- untrue if: tfhybrid.not --> |
"""


def test_items_and_rows_that_deny_something_are_found():
    assert len(claim_markers.statements(PAGE)) == 5
    found = claim_markers.denials(PAGE, columns=(1, 2))
    assert [short(each)[:12] for each in found] == [
        "No such thin",
        "Something th",
        "It stops | n",
        "It ends <!--",
    ]
    assert [short(each)[:12] for each in claim_markers.unmarked(found)] == [
        "Something th",
        "It stops | n",
    ]
