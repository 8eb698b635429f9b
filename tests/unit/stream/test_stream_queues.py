"""Places of queues in `stream.yaml`: addresses, and topics that other programs write."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.stream.stream_file import write_stream
from tfhybrid.errors import ConfigError
from tfhybrid.stream.stream_queues import StreamQueues
from tfhybrid.stream.stream_settings import StreamSettings

CLICKS = {"kafka": "b:1/clicks", "ours": "no"}


def settings_of(folder: Path, routes: dict, **queues: object) -> StreamSettings:
    """Reads the settings of a stream with these routes and queues."""
    return StreamSettings.read(
        write_stream(folder, folder, {"item": "int64"}, routes=routes, queues=queues)
    )


def test_a_topic_of_others_needs_no_routes(tmp_path: Path):
    settings = settings_of(tmp_path, {"models": {"ads": ["clicks"]}}, clicks=CLICKS)
    assert settings.queue_routes.queues_of("ads") == ("clicks",)
    assert settings.queue_address("clicks/3") == "kafka://b:1/clicks/3"
    queues = StreamQueues(settings.queues, settings.folder)
    assert list(queues.others) == ["clicks"]
    assert queues.committed == []  # nothing is written to the brokers of others


def test_a_queue_of_ours_with_settings(tmp_path: Path):
    (tmp_path / "kafka.yaml").write_text("security.protocol: SASL_SSL\nssl.endpoint: none\n")
    ours = {"kafka": "b:1/video/2", "settings": str(tmp_path / "kafka.yaml")}
    routes = {"columns": ["item"], "queues": {7: "video", 8: "news", 9: "sport"}}
    models = {"ads": ["video", "news", "sport", "clicks"]}
    declared = {"video": ours, "news": "kafka://b:1/news", "clicks": CLICKS}
    settings = settings_of(tmp_path, {**routes, "models": models}, **declared)
    queues = StreamQueues(settings.queues, settings.folder)
    assert queues.address("video") == "kafka://b:1/video/2"
    assert queues.address("sport") == str(Path(settings.folder) / "queues" / "sport")
    assert sorted(queues.committed) == ["news", "video"]
    (tmp_path / "kafka.yaml").write_text("isolation.level: read_uncommitted\n")
    with pytest.raises(ConfigError, match=r"without auto\.offset\.reset"):
        queues.open("video")
    (tmp_path / "kafka.yaml").write_text("5\n")
    with pytest.raises(ConfigError, match=r"must be a mapping.*Received: 5"):
        StreamQueues(settings.queues, settings.folder).open("video")


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({"kafka": "b:1/clicks", "ours": "perhaps"}, "ours must be yes or no. Received: 'perhaps'"),
        ({"kafka": "b:1/clicks/3", "ours": False}, "the form HOST:PORT/TOPIC"),
        ({"kafka": "clicks"}, "the form HOST:PORT/TOPIC"),
        ({"ours": False}, "kafka"),
        ({**CLICKS, "group": "ads"}, "group"),
        (7, "Queue clicks must have an address, or the fields kafka, ours and settings"),
    ],
)
def test_a_place_that_cannot_be(tmp_path: Path, place: object, reason: str):
    with pytest.raises(ConfigError, match=reason):
        settings_of(tmp_path, {"models": {"ads": ["clicks"]}}, clicks=place)


@pytest.mark.parametrize(
    ("routes", "reason"),
    [
        ({"columns": ["item"], "queues": {7: "clicks"}}, "Received: routes to .'clicks'."),
        ({"columns": ["item"], "queues": {7: "clicks/0"}}, "Received: routes to .'clicks/0'."),
        ({"queues": {7: "video"}}, "a list of at least one column"),
        ({"models": {"ads": ["others"]}}, "must be among .'clicks'., at least one"),
        ({"others": ["clicks"]}, "the fields must be from"),
    ],
)
def test_routes_that_cannot_be(tmp_path: Path, routes: dict, reason: str):
    with pytest.raises(ConfigError, match=reason):
        settings_of(tmp_path, {"models": {"ads": ["clicks"]}, **routes}, clicks=CLICKS)


def test_the_words_of_yaml(tmp_path: Path):
    """`no` is a text in YAML 1.2."""
    path = write_stream(tmp_path, tmp_path, {"item": "int64"})
    fields = yaml.safe_load(path.read_text()) | {"routes": {"models": {"ads": ["clicks"]}}}
    text = yaml.safe_dump(fields) + "queues: {clicks: {kafka: 'b:1/clicks', ours: no}}\n"
    path.write_text(text)
    assert StreamSettings.read(path).queue_address("clicks/0") == "kafka://b:1/clicks/0"
