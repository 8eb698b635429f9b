from __future__ import annotations

import glob
import os
import sys
import warnings

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


def test_messages_that_the_user_has_chosen_stay(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    settings.quiet_libraries()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    settings.quiet_libraries()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "3"


@pytest.mark.parametrize(("chosen", "shown"), [([], False), (["default"], True)])
def test_warnings_that_the_user_has_chosen_stay(monkeypatch, chosen, shown):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setattr(sys, "warnoptions", chosen)
    needless, ours = "`shuffle=True` was passed, but will be ignored since", "another warning"
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        settings.quiet_libraries()
        for text in (needless, ours):
            warnings.warn(text, stacklevel=1)
    assert [str(each.message) for each in caught] == [needless] * shown + [ours]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a filter of the user's own, which is older
        settings.quiet_libraries()
        with pytest.raises(UserWarning, match="shuffle=True"):
            warnings.warn(needless, stacklevel=1)


@pytest.mark.parametrize("hidden", ["", "-1", "NoDevFiles"])
def test_gpus_that_the_user_hides_are_not_available(monkeypatch, hidden):
    monkeypatch.setattr(glob, "glob", lambda _: ["/dev/nvidia0", "/dev/nvidia1"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert settings.available_gpus() == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert settings.available_gpus() == 2
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert settings.available_gpus() == 2
