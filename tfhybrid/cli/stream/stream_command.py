"""`tfhybrid stream`: commands that run the processes of online training, and feed them."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated, Any

import typer

from tfhybrid.cli.stream import audit_command, publications
from tfhybrid.cli.stream.feed_command import feed
from tfhybrid.cli.stream.journal_command import Model, journal
from tfhybrid.cli.stream.stream_top import Config, top
from tfhybrid.cli.terminal.console import show
from tfhybrid.cli.terminal.help_page import CommandApp

app = CommandApp()


@app.callback()
def stream() -> None:
    """Run, feed and watch the processes of online training."""


@app.command()
def sync(config: Config) -> None:
    """Run the sync unit, until SIGTERM.

    It owns the weights that trainers update, and publishes them. Its files are in `folder:` of
    FILE.
    """
    from tfhybrid.rpc.serving_calls import open_port, serve_calls
    from tfhybrid.stream.call_rights import CALL_RIGHTS
    from tfhybrid.stream.stream_settings import StreamSettings

    settings = StreamSettings.read(config)
    with open_port(settings.sync) as port, closing(settings.sync_unit()) as unit:
        serve_calls(port, settings.tokens, unit.calls, CALL_RIGHTS)


@app.command()
def provide(config: Config) -> None:
    """Run the data provider, until SIGTERM.

    It stores rows in queues and leases them to trainers. Start the sync unit before it.
    """
    from tfhybrid.rpc.remote_methods import served
    from tfhybrid.rpc.serving_calls import open_port, serve_calls
    from tfhybrid.stream.call_rights import CALL_RIGHTS
    from tfhybrid.stream.stream_settings import StreamSettings

    settings = StreamSettings.read(config)
    with (
        # First: opening the queues ends the leases of a provider that runs already.
        open_port(settings.provider) as port,
        closing(settings.open_provider()) as provider,
        closing(settings.offset_committer()),
    ):
        serve_calls(port, settings.tokens, served(provider), CALL_RIGHTS, provider.check)


@app.command()
def run(
    config: Config,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON at each start, end and audit.")
    ] = False,
) -> None:
    """Run all processes of online training on this machine.

    They are the sync unit (which owns the weights), the data provider (which leases rows to
    trainers) and the trainers under `trainers:` in FILE. A process that fails is started again.
    Ends at SIGTERM, or when all trainers have ended with status 0. Then an audit accounts for each
    row; the status is 1 if rows are missing.

    $ tfhybrid stream run stream.yaml
    """
    from tfhybrid.cluster.node_options import set_up_logging
    from tfhybrid.stream import running

    set_up_logging()

    def report(states: dict[str, Any]) -> None:
        if as_json:
            typer.echo(json.dumps(states))
            return
        alive = (
            f"{name} {process['pid']}"
            for name, process in states.items()
            if process["pid"] is not None
        )
        show(f"running: {', '.join(alive)}")

    accounts = running.run(config, report)
    if as_json:
        typer.echo(json.dumps({"audit": audit_command.fields_of(accounts)}))
    elif accounts:
        audit_command.show_accounts(accounts)
    audit_command.check(accounts)


app.command()(feed)


@app.command()
def retry(config: Config, model: Model) -> None:
    """Put rows that were set aside back at the head of their queues.

    They are those of leases under which as many trainers have died as `max_deaths:` in FILE says.
    `tfhybrid stream top` names them.

    $ tfhybrid stream retry stream.yaml ctr
    """
    from tfhybrid.stream.stream_settings import StreamSettings

    rows = StreamSettings.read(config).remote_provider("retry").retry(model)
    for queue, count in rows.items():
        typer.echo(f"{model}: {count} rows of queue {queue} are leased again")


app.command()(publications.publish)
app.command()(publications.rollback)
app.command()(publications.serve)
app.command()(publications.export)
app.command()(audit_command.audit)
app.command()(journal)
app.command()(top)
