"""Old names that still work: the list of them, and what each kind of alias does."""

from __future__ import annotations

import ast
import dataclasses
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfhybrid import _deprecated
from tfhybrid._deprecated import (
    moved_names,
    renamed_arguments,
    renamed_attributes,
    renamed_fields,
    renamed_keys,
    renamed_names,
    renamed_value,
    run_renamed,
    warn_renamed,
)
from tfhybrid.cli.train.table_section import EvictionSettings
from tfhybrid.cli.train.train_settings import Checkpoints
from tfhybrid.stream.stream_settings import StreamSettings

PACKAGE = Path(_deprecated.__file__).parent
KINDS = {function.__name__ for function in (renamed_arguments, renamed_attributes, renamed_keys)}
KINDS |= {
    renamed_fields.__name__,
    moved_names.__name__,
    renamed_names.__name__,
    renamed_value.__name__,
    run_renamed.__name__,
    warn_renamed.__name__,
}

# File, old name and new name of every alias. Drop them from the package after one release.
ALIASES: set[tuple[str, str, str]] = {
    ("__init__.py", "RecordFile", "tfhybrid.checkpoint.RecordFile"),
    ("callbacks/checkpoint.py", "full_every", "full_every_saves"),
    ("callbacks/compare_replicas.py", "every", "every_steps"),
    ("callbacks/tensor_board.py", "every", "every_steps"),
    ("checkpoint/manager.py", "full_every", "full_every_saves"),
    ("cli/train/table_section.py", "every", "every_steps"),
    ("cli/train/train_settings.py", "full_every", "full_every_saves"),
    ("cluster/cluster_file.py", "engine", "launcher"),
    ("cluster/cluster_file.py", "shares", "shards"),
    (
        "cluster/metadata_node.py",
        "python -m tfhybrid.cluster.metadata_node",
        "tfhybrid node metadata",
    ),
    ("config/row_policy.py", "every", "every_steps"),
    ("config/table_config.py", "fast_tier", "gather_on"),
    ("core/passes.py", "asked", "requested"),
    ("data/__init__.py", "data_directory", "tfhybrid.data.archives.data_directory"),
    ("data/__init__.py", "open_criteo_head", "tfhybrid.data.archives.open_criteo_head"),
    ("data/__init__.py", "open_frappe", "tfhybrid.data.archives.open_frappe"),
    ("data/__init__.py", "open_movielens_stream", "tfhybrid.data.archives.open_movielens_stream"),
    ("data/__init__.py", "unpacked", "tfhybrid.data.archives.unpacked"),
    ("data/data_node.py", "python -m tfhybrid.data.data_node", "tfhybrid node data"),
    ("data/from_nodes.py", "join", "delivery"),
    ("data/from_nodes.py", "most_bytes", "max_bytes"),
    ("data/from_nodes.py", "share", "divide_by"),
    ("data/node/__main__.py", "python -m tfhybrid.data.node", "tfhybrid node data"),
    ("data/node_batches.py", "join", "delivery"),
    ("data/node_batches.py", "most_bytes", "max_bytes"),
    ("data/node_batches.py", "share", "divide_by"),
    ("data_nodes/key_links.py", "notice", "notify"),
    ("data_nodes/key_links.py", "request", "pull"),
    ("data_nodes/key_links.py", "unasked", "push"),
    (
        "embedding_nodes/embedding_node.py",
        "python -m tfhybrid.embedding_nodes.embedding_node",
        "tfhybrid node embedding",
    ),
    ("layers/__init__.py", "TableProxy", "tfhybrid.layers.table_proxy.TableProxy"),
    ("monitoring/report.py", "asked", "requested"),
    (
        "nodes/embedding/__main__.py",
        "python -m tfhybrid.nodes.embedding",
        "tfhybrid node embedding",
    ),
    ("nodes/metadata/__main__.py", "python -m tfhybrid.nodes.metadata", "tfhybrid node metadata"),
    (
        "optimizers/__init__.py",
        "SparseOptimizer",
        "tfhybrid.config.table_optimizers.SparseOptimizer",
    ),
    ("optimizers/__init__.py", "twin", "tfhybrid.optimizers.twin.twin"),
    ("store/__init__.py", "OwnerShare", "ShardSize"),
    ("stream/__init__.py", "LogQueue", "tfhybrid.stream.queues.log_queue.LogQueue"),
    ("stream/__init__.py", "Position", "QueuePosition"),
    ("stream/__init__.py", "Queue", "tfhybrid.stream.queues.queue.Queue"),
    ("stream/__init__.py", "Record", "tfhybrid.stream.queues.queue.Record"),
    ("stream/provider/lease_length.py", "most_rows", "max_rows"),
    ("stream/queues/kafka_queue.py", "most", "max_records"),
    ("stream/queues/label_join.py", "most", "max_impressions"),
    ("stream/queues/log_queue.py", "most", "max_records"),
    ("stream/stream_settings.py", "every", "every_steps"),
    ("stream/stream_settings.py", "most_behind", "max_behind"),
    ("stream/stream_settings.py", "most_rows", "max_rows"),
}


def aliases_in(file: Path) -> Iterator[tuple[str, str, str]]:
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call) or getattr(node.func, "id", None) not in KINDS:
            continue
        name = file.relative_to(PACKAGE).as_posix()
        if node.func.id in (run_renamed.__name__, warn_renamed.__name__):
            old, new = (ast.literal_eval(argument) for argument in node.args[:2])
            yield name, old, new
        for keyword in node.keywords:
            if keyword.arg != "stacklevel":
                yield name, str(keyword.arg), ast.literal_eval(keyword.value)


def test_list_names_every_alias():
    files = set(PACKAGE.rglob("*.py")) - {Path(_deprecated.__file__)}
    assert {alias for file in sorted(files) for alias in aliases_in(file)} == ALIASES


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("tfhybrid.cluster.metadata_node", "metadata"),
        ("tfhybrid.embedding_nodes.embedding_node", "embedding"),
        ("tfhybrid.data.data_node", "data"),
        ("tfhybrid.nodes.metadata", "metadata"),
        ("tfhybrid.nodes.embedding", "embedding"),
        ("tfhybrid.data.node", "data"),
    ],
)
def test_old_command_runs_new_one(module: str, command: str):
    run = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True
    )
    assert f"node {command} [OPTIONS]" in run.stdout
    assert f"`python -m {module}` is deprecated: use `tfhybrid node {command}`" in run.stderr


def test_module_finds_old_name():
    get = renamed_names({"New": 7}.__getitem__, Old="New")
    with pytest.warns(DeprecationWarning, match="`Old` is deprecated: use `New`"):
        assert get("Old") == 7


def test_module_finds_what_it_no_longer_offers():
    get = moved_names(maxsize="sys.maxsize")
    with pytest.warns(DeprecationWarning, match="`maxsize` is deprecated: use `sys.maxsize`"):
        assert get("maxsize") == sys.maxsize
    with pytest.raises(AttributeError, match="other"):
        get("other")


def test_new_names_do_not_warn():
    @renamed_attributes(old="new")
    class Pair:
        new = 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert renamed_names({"New": 7}.__getitem__, Old="New")("New") == 7
        assert renamed_arguments(old="new")(lambda new: new)(new=3) == 3
        assert renamed_keys({"new": 4}, old="new") == {"new": 4}
        assert Pair().new == 2


def test_function_takes_old_argument():
    function = renamed_arguments(old="new")(lambda first, new=0: (first, new))
    with pytest.warns(DeprecationWarning, match="`old` is deprecated: use `new`") as caught:
        assert function(1, old=2) == (1, 2)
    assert caught[0].filename == __file__


def test_both_names_of_an_argument_are_refused():
    with pytest.raises(TypeError, match="got both 'old' and 'new'"):
        renamed_arguments(old="new")(lambda new: new)(old=1, new=2)


def test_attribute_has_old_name():
    @renamed_attributes(old="new")
    class Pair:
        new = 2

    with pytest.warns(DeprecationWarning, match="`old` is deprecated: use `new`"):
        assert Pair().old == 2


def test_field_has_old_name():
    @renamed_fields(old="new")
    @dataclasses.dataclass(frozen=True)
    class Pair:
        new: int = 2

    with pytest.warns(DeprecationWarning, match="`old` is deprecated: use `new`") as caught:
        pair = Pair(old=3)
    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="`old` is deprecated: use `new`"):
        assert pair.old == 3
    assert dataclasses.replace(pair, new=4) == Pair(4)


def test_argument_has_old_value():
    def function(delivery="pull"):
        return renamed_value(delivery, unasked="push")

    with pytest.warns(DeprecationWarning, match="`unasked` is deprecated: use `push`") as caught:
        assert function("unasked") == "push"
    assert caught[0].filename == __file__
    assert (function(), function("push"), renamed_value(3, old="new")) == ("pull", "push", 3)


def test_settings_have_old_key():
    with pytest.warns(DeprecationWarning, match="`old` is deprecated: use `new`"):
        assert renamed_keys({"old": 1, "other": 2}, old="new") == {"new": 1, "other": 2}


def test_both_keys_stay_for_the_reader_to_refuse():
    assert renamed_keys({"old": 1, "new": 2}, old="new") == {"old": 1, "new": 2}


@pytest.mark.parametrize(
    ("section", "old", "new"),
    [
        (EvictionSettings, {"every": 4}, {"every_steps": 4}),
        (
            Checkpoints,
            {"directory": "c", "full_every": 4},
            {"directory": "c", "full_every_saves": 4},
        ),
    ],
)
def test_sections_of_train_settings_have_old_keys(section, old, new):
    with pytest.warns(DeprecationWarning, match=r"use `(every_steps|full_every_saves)`"):
        assert section.model_validate(old) == section.model_validate(new)


def test_stream_settings_have_old_keys(tmp_path):
    fields = {
        **{"folder": "f", "provider": "h:1", "sync": "h:2", "token_file": "t"},
        **{"columns": {"key": "int64"}, "lease": {"most_rows": 6}},
        "routes": {"columns": ["key"], "queues": {"1": "q"}, "models": {"model": ["q"]}},
        "most_behind": 5,
        "policies": {"model": {"item": {"eviction": {"unseen_steps": 8, "every": 2}}}},
    }
    path = tmp_path / "stream.yaml"
    path.write_text(json.dumps(fields))
    with pytest.warns(DeprecationWarning, match="is deprecated: use") as warned:
        settings = StreamSettings.read(path)
    assert (settings.max_behind, settings.lease) == (5, {"max_rows": 6})
    messages = {str(each.message).partition(":")[0] for each in warned}
    assert messages == {f"`{old}` is deprecated" for old in ("most_behind", "most_rows", "every")}
