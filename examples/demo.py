"""Trains DeepFM on real clicks if they are there, on generated ones otherwise, and judges it.

horovodrun -np 2 python examples/demo.py
python examples/demo.py
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import frappe
from click_training import Recipe, Splits, train
from report import ProgressBar, draw_curve, summary
from rich.console import Console

import tfhybrid
from tfhybrid.data import ClickLog, IdSpace
from tfhybrid.data.archives import open_frappe
from tfhybrid.errors import DataError

CURVE = Path("demo-output/learning_curve.png")


class Source(NamedTuple):
    """Samples, how they are best trained on and what the AUC is judged by."""

    title: str
    splits: Splits
    recipe: Recipe
    reference: tuple[str, str]


def main() -> None:
    """Trains and reports; rank 0 talks."""
    tfhybrid.init()
    console = Console(quiet=tfhybrid.rank() != 0)
    source = open_source()
    console.print(f"[bold]{source.title}[/bold]: {len(source.splits.train):,} samples to train on")
    bar = [ProgressBar(console)] if tfhybrid.rank() == 0 else []
    outcome = train(source.splits, source.recipe, bar)
    console.print(summary(outcome, source.reference, tfhybrid.size(), tfhybrid.local_size()))
    if tfhybrid.rank() == 0:
        draw_curve(outcome.curve, source.title, CURVE)
        console.print(f"learning curve: {CURVE}")


def open_source() -> Source:
    """Returns Frappe_x1 where it is, else a generated click log."""
    try:
        splits = Splits(*open_frappe())
    except DataError:
        return generated_source()
    return Source(
        "Frappe_x1 (real data; its train negatives are redrawn)",
        splits,
        frappe.RECIPE,
        ("published (BARS, with regularisers)", f"{frappe.PUBLISHED_AUC:.4f}"),
    )


def generated_source() -> Source:
    """Returns a generated click log, whose best possible AUC is known."""
    log = ClickLog(
        {"user": IdSpace(1_000), "item": IdSpace(500), "city": IdSpace(100, 1.4), "hour": 24},
        seed=1,
    )
    train_samples, held_out = 400_000, 40_000
    starts = (0, train_samples, train_samples + held_out)
    splits = Splits(*map(log.clicks, starts, (train_samples, held_out, held_out)))
    best = log.best_auc(held_out, start=starts[-1]).drawn
    return Source(
        "Generated click log (no real data found)",
        splits,
        dataclasses.replace(frappe.RECIPE, hidden=(128, 64)),
        ("best possible with these labels", f"{best:.4f}"),
    )


if __name__ == "__main__":
    main()
