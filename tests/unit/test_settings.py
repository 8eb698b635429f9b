from __future__ import annotations

import os

import pytest

from tfhybrid import settings
from tfhybrid.errors import ConfigError


def test_horovods_own_limit_comes_after_ours(monkeypatch):
    monkeypatch.setenv("TFHYBRID_SILENCE_SECONDS", "90.5")
    monkeypatch.delenv("HOROVOD_GLOO_TIMEOUT_SECONDS", raising=False)
    settings.set_horovod_defaults()
    assert settings.silence_seconds() == 90.5
    assert os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] == "121"


def test_what_the_user_has_set_for_horovod_stays(monkeypatch):
    monkeypatch.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "7")
    settings.set_horovod_defaults()
    assert os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] == "7"


@pytest.mark.parametrize("seconds", ["", "soon", "0", "-1", "nan", "inf", "86401"])
def test_a_limit_that_cannot_be_is_refused(monkeypatch, seconds):
    monkeypatch.setenv("TFHYBRID_SILENCE_SECONDS", seconds)
    with pytest.raises(ConfigError, match=r"from 1 to 86400 seconds\. Received: "):
        settings.silence_seconds()
