"""The notebook runs, each cell twice, and learns."""

from __future__ import annotations

import copy
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[3] / "examples" / "notebook.ipynb"


def test_every_cell_runs_twice(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    notebook.cells = [copy.deepcopy(cell) for cell in notebook.cells for _ in range(2)]
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"run-{number}"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told = [
        [output["data"]["text/plain"] for output in cell["outputs"] if "data" in output]
        for cell in notebook.cells
        if cell["cell_type"] == "code"
    ]
    (best,) = told[2]  # the cell of the data
    for (auc,) in told[-2:]:
        assert 0.95 < (float(auc) - 0.5) / (float(best) - 0.5) < 1
    assert any("TableStats(rows=100" in text for texts in told for text in texts)
