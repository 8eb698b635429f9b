"""Progress, final tables and learning curve of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import keras
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from click_training import Outcome, Point

AUC, LOSS = "#1f6feb", "#8b949e"
BARS = "▁▂▃▄▅▆▇█"


class ProgressBar(keras.callbacks.Callback):
    """A bar of all steps."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
            console=console,
            expand=True,
        )

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Shows the bar."""
        steps = self.params["epochs"] * self.params["steps"]
        self._task = self._progress.add_task("training", total=steps)
        self._progress.start()

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        """Moves it by a step."""
        self._progress.advance(self._task)

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        """Prints the epoch above the bar."""
        self._progress.console.print(
            f"epoch {epoch + 1:2}  train loss {logs['loss']:.4f}  "
            f"validation AUC {logs['valid_auc']:.4f}"
        )

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        """Hides the bar: early stopping may leave it short of its end."""
        self._progress.update(self._task, visible=False)
        self._progress.stop()


def quality(outcome: Outcome, reference: tuple[str, float], ranks: int) -> Table:
    """Builds the table of the model's quality.

    Args:
        outcome: Result of the training.
        reference: Name and value of the AUC to compare with.
        ranks: Number of ranks of the job.
    """
    table = _two_columns(f"DeepFM on {ranks} rank{'s'[: ranks > 1]}")
    table.add_row("test AUC", f"{outcome.auc:.4f}")
    table.add_row(reference[0], f"{reference[1]:.4f}")
    table.add_row("test log loss", f"{outcome.log_loss:.4f}")
    table.add_row("validation AUC", sparkline([point.valid_auc for point in outcome.curve]))
    table.add_row("training", f"{outcome.samples_per_second:,.0f} samples/s")
    rows = {name: stats.rows for name, stats in outcome.tables.items()}
    table.add_row("tables, rows", f"{len(rows)}, {sum(rows.values()):,}")
    return table


def sizes(lines: Sequence[tuple[str, str]]) -> Table:
    """Builds the table of memory from its title, first, and titles with their sizes."""
    table = _two_columns(lines[0][0])
    for line in lines[1:]:
        table.add_row(*line)
    return table


def _two_columns(title: str) -> Table:
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    return table


def sparkline(values: Sequence[float]) -> str:
    """Draws numbers as a line of bars, the lowest and the highest beside it."""
    low, high = min(values), max(values)
    scale = (len(BARS) - 1) / ((high - low) or 1.0)
    bars = "".join(BARS[round((value - low) * scale)] for value in values)
    return f"{low:.4f} {bars} {high:.4f}"


def draw_curve(curve: Sequence[Point], title: str, path: Path) -> None:
    """Writes a PNG of validation AUC and train loss over the steps; marks the best AUC."""
    from matplotlib.figure import Figure

    steps = [point.step for point in curve]
    best = max(curve, key=lambda point: point.valid_auc)
    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.subplots()
    right = left.twinx()
    lines = [
        *left.plot(
            steps, [point.valid_auc for point in curve], "o-", color=AUC, label="validation AUC"
        ),
        *right.plot(
            steps, [point.train_loss for point in curve], "s--", color=LOSS, label="train loss"
        ),
        *left.plot(
            best.step,
            best.valid_auc,
            "*",
            color=AUC,
            markersize=16,
            label=f"best AUC {best.valid_auc:.4f}, step {best.step:,}",
        ),
    ]
    left.set(title=title, xlabel="step", ylabel="validation AUC")
    right.set(ylabel="train loss, mean of the epoch")
    figure.legend(handles=lines, loc="outside lower center", ncols=3, frameon=False)
    left.margins(y=0.1)
    left.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
