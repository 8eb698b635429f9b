"""Trains DeepFM on Frappe_x1 and writes what came of it.

    horovodrun -np 2 python examples/frappe.py --seed 1 --output frappe.json

The published test AUC of DeepFM is 0.9842 (BARS benchmark, with a penalty of the embeddings).
`RECIPE` has no penalty, and other learning rates; `REGULARIZED` of click_training.py, that of the
demo, is the published recipe with a smaller network. The archive's train negatives were redrawn by
the benchmark's rule.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import tfhybrid
from tfhybrid.data.archives import open_frappe

from click_training import Recipe, Splits, train

PUBLISHED_AUC = 0.9842
RECIPE = Recipe()


def main() -> None:
    """Trains with one seed; rank 0 prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--wire-dtype", default="float32", help="of gradients between hosts")
    parser.add_argument(
        "--pass-batches", type=int, default=0, help="make one update of so many batches"
    )
    parser.add_argument("--output", type=Path, help="a JSON file")
    arguments = parser.parse_args()

    tfhybrid.init(seed=arguments.seed)
    recipe = dataclasses.replace(
        RECIPE,
        seed=arguments.seed,
        wire_dtype=arguments.wire_dtype,
        pass_batches=arguments.pass_batches,
    )
    outcome = train(Splits(*open_frappe()), recipe)
    if tfhybrid.rank() == 0:
        result = {
            "ranks": tfhybrid.size(),
            "seed": arguments.seed,
            "wire_dtype": arguments.wire_dtype,
            "pass_batches": arguments.pass_batches,
            "auc": outcome.auc,
            "log_loss": outcome.log_loss,
            "epochs": len(outcome.curve),
            "samples_per_second": outcome.samples_per_second,
        }
        print(json.dumps(result, indent=2))
        if arguments.output:
            arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
