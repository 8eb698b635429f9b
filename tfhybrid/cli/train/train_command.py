"""`tfhybrid train`: training of a built-in model on files, without Python code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfhybrid.cli.terminal.console import plain, show, show_json
from tfhybrid.errors import ConfigError


def train(
    settings: Annotated[
        Path | None, typer.Argument(help="YAML file; docs/train.md lists every setting.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the file without training.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the file, for editors.")
    ] = False,
) -> None:
    """Train a model of tfhybrid.models on files, with checkpoints, metrics and export.

    Runs on one rank, or on many: horovodrun -np 8 tfhybrid train model.yaml

    A job with checkpoints resumes from the newest one when it is started again.
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
    if check:
        show(plain(f"{settings}: good"))
        return
    from tfhybrid import distributed
    from tfhybrid.cli.train.training import Training

    result = Training(file).run()
    if distributed.rank() > 0:
        return
    scores = result.get("scores", {})
    texts = [f"step {result['step']}", *(f"{name} {score:.6g}" for name, score in scores.items())]
    show(plain(", ".join(texts)))
    if "exported" in result:
        show(plain(f"exported {result['exported']}"))
