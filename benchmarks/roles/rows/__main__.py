"""Rows of another host by the row service, against its engine called directly.

    python -m benchmarks.roles.rows [--keys 100000] [--rounds 7] [--tls]

A process owns a table, and another one reads all keys of a batch from it over TCP on this machine,
as a lookup of a sharded table does. Both are measured by turns, on an idle machine and beside a
Python interpreter that is busy in the owner's process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.roles.rows.owner import NAME, SILENCE, batches, encryption, opened, own, seconds_of
from tfhybrid.job.row_service import Leader, RowService
from tfhybrid.settings import TlsFiles


def main() -> None:
    """Measures and shows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tls", action="store_true", help="encrypt, by a certificate made here")
    options = parser.parse_args()
    times: dict[tuple[str, bool], list[float]] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        options.files = certificate(Path(folder)) if options.tls else None
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=own, args=(theirs, Path(folder), options)
        )
        process.start()
        address, token = ours.recv()
        engine = opened(Path(folder), 1, options.dim)
        reader = RowService(engine, 1, None, token, SILENCE, encryption(options))
        reader.start([Leader(address, "rank 0"), Leader(None, "rank 1")])
        reader.connect()
        for keys in batches(options.keys, options.rounds):
            for load in (False, True):
                assert ours.recv() == "owner reads"
                ours.send("go on")
                times.setdefault(("directly", load), []).append(ours.recv())
                seconds = seconds_of(engine.lookup, NAME, options.dim, keys)
                times.setdefault(("by the service", load), []).append(seconds)
                ours.send("go on")
        process.join()
        reader.stop()
        engine.close_store()
    show(times, options)


def certificate(folder: Path) -> TlsFiles:
    """Makes a certificate that is its own CA, with the openssl command."""
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    files = ["-subj", "/CN=benchmark", "-keyout", key, "-out", cert]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return TlsFiles(cert, key, cert)


def show(times: dict[tuple[str, bool], list[float]], options: argparse.Namespace) -> None:
    """Prints the medians, and the share of the direct call that the service comes to."""
    table = Table(title=f"{options.keys:,} keys, rows of {4 * options.dim} bytes, ms")
    for heading in ("", "idle", "beside a busy interpreter"):
        table.add_column(heading)
    medians = {which: 1e3 * statistics.median(found) for which, found in times.items()}
    for side in ("directly", "by the service"):
        table.add_row(side, *(f"{medians[side, load]:.2f}" for load in (False, True)))
    shares = (medians["directly", load] / medians["by the service", load] for load in (False, True))
    table.add_row("share", *(f"{share:.2f}" for share in shares))
    Console().print(table)


if __name__ == "__main__":
    main()
