"""`tfhybrid train`: training of a built-in model on files, without Python code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.cli.terminal.console import plain, show, show_json
from tfhybrid.errors import ConfigError


def train(
    settings: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Settings in YAML; --schema lists all of them."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Check the file and its data, with one batch. Writes nothing."
        ),
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the file, for editors.")
    ] = False,
) -> None:
    """Train a built-in model on files, as a YAML file describes.

    The file names the data, the model of tfhybrid.models, its tables, and where checkpoints,
    metrics and the exported model go. Runs on one rank, or on all ranks of horovodrun. A job with
    checkpoints resumes from the newest one when it is started again.

    $ tfhybrid train model.yaml --check
    $ horovodrun -np 8 tfhybrid train model.yaml
    """
    # Imported here: importing pydantic takes longer than everything else in other commands.
    if schema:
        from tfhybrid.cli.train.train_settings import Settings

        show_json(Settings.model_json_schema())
        return
    if settings is None:
        raise ConfigError("train needs a file of settings. Received: none")
    from tfhybrid.cli.train.settings_file import SettingsFile

    file = SettingsFile(settings)
    from tfhybrid import distributed
    from tfhybrid.cli.train.training import Training

    if check:
        file.sample_format()  # before the job starts, which takes seconds
        Training(file, trial=True).try_out()
        if distributed.rank() == 0:
            show(plain(f"{settings}: good"))
        return
    result = Training(file).run()
    if distributed.rank() > 0:
        return
    scores = result.get("scores", {})
    texts = [f"step {result['step']}", *(f"{name} {score:.6g}" for name, score in scores.items())]
    show(plain(", ".join(texts)))
    if "exported" in result:
        show(plain(f"exported {result['exported']}"))
