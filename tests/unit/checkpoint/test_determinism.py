"""Checkpoints and restarts from memory with `tf.config.experimental.enable_op_determinism()`."""

from __future__ import annotations

from tests.unit.checkpoint import deterministic_job


def test_a_deterministic_job_saves_and_resumes_bit_by_bit(
    start_forked, tmp_path, shm_directory
) -> None:
    process, connection = start_forked(deterministic_job.run, str(tmp_path), str(shm_directory))
    with connection:
        whole = connection.recv()
        assert connection.recv() == whole
        assert connection.recv() == whole
        assert connection.recv(), "a global generator was set behind the program's back"
    process.join()
    assert process.exitcode == 0
