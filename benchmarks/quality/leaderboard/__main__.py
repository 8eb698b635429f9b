"""The models on Frappe_x1 beside their published AUC and log loss.

    python -m benchmarks.quality.leaderboard [--ranks 2] [--seeds 0 1 2] [--models LR FM ...]

Other models and seeds keep the results that they have. Valid and test are the rows of the public
benchmark; train has all its positives, and negatives drawn anew by its rule. Epochs are chosen on
the validation split alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics

from rich.console import Console
from rich.table import Table

from benchmarks.quality.leaderboard.recipes import RECIPES
from benchmarks.support import launch

TOLERANCE = 0.001


def main() -> None:
    """Trains every model with every seed, prints means beside what was published, keeps all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality.leaderboard", description=__doc__
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--models", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--name", default="leaderboard", help="name of the result file")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    chosen = list(itertools.product(arguments.models, arguments.seeds))
    runs = others(arguments.name, chosen, arguments.ranks)
    for model, seed in chosen:
        options = ["--model", model, "--seed", str(seed)]
        run = launch.run_side(
            "benchmarks.quality.leaderboard.train", options, arguments.ranks, timeout=3600
        )
        runs.append(run)
        console.print(
            f"{model}, seed {seed}: test AUC {run['auc']:.4f}, log loss {run['log_loss']:.4f}, "
            f"validation {run['valid_auc']:.4f}, {run['epochs']} epochs"
        )
    runs.sort(key=lambda run: (list(RECIPES).index(str(run["side"])), run["seed"]))
    console.print(table_of(runs, arguments.ranks))
    measured = {str(run["side"]) for run in runs}
    published = {
        model: recipe.published._asdict() for model, recipe in RECIPES.items() if model in measured
    }
    result = {"ranks": arguments.ranks, "published": published, "runs": runs}
    launch.write_result(arguments.name, result)


def others(name: str, chosen: list[tuple[str, int]], ranks: int) -> list[dict[str, object]]:
    """Returns what an earlier result holds of other models and seeds on as many ranks."""
    path = launch.RESULTS / f"{name}.json"
    earlier = json.loads(path.read_text()) if path.exists() else {"ranks": ranks, "runs": []}
    if earlier["ranks"] != ranks:
        return []
    return [run for run in earlier["runs"] if (run["side"], run["seed"]) not in chosen]


def table_of(runs: list[dict[str, object]], ranks: int) -> Table:
    """Builds a row per model: the means of its seeds beside what was published."""
    table = Table(title=f"Frappe_x1 on {ranks} ranks: test scores, means of the seeds")
    table.add_column("model")
    for heading in ("AUC", "published", "difference", "log loss", "published", "seeds"):
        table.add_column(heading, justify="right")
    for model in dict.fromkeys(str(run["side"]) for run in runs):
        same = [run for run in runs if run["side"] == model]
        auc, log_loss = (
            statistics.mean(float(run[score]) for run in same)  # type: ignore[arg-type]
            for score in ("auc", "log_loss")
        )
        published = RECIPES[model].published
        difference = auc - published.auc
        table.add_row(
            model,
            f"{auc:.4f}",
            f"{published.auc:.4f}",
            f"[{'green' if difference >= -TOLERANCE else 'red'}]{difference:+.4f}[/]",
            f"{log_loss:.4f}",
            f"{published.log_loss:.4f}",
            str(len(same)),
        )
    return table


if __name__ == "__main__":
    main()
