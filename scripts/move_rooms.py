"""Moves the modules of the package into rooms, and rewrites every mention of them.

    python scripts/move_rooms.py

Run once, at the root of a clean checkout whose tools are installed. The commit after this one is
what it leaves; it then goes, as it has nothing more to move.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tempfile
import tokenize
from pathlib import Path


def git(*arguments: str) -> str:
    """Runs a command of git."""
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


# New room: its docstring, and its modules by their old paths; `a/b>c` also renames the file.
ROOMS = {
    "config": (
        "The settings of tables: policies, placement, storage, optimizers.",
        "config>table_config row_policy placement file_tier table_optimizers",
    ),
    "rpc": (
        "Messages between processes: listener, handshake, calls, TLS.",
        "nodes/door>listener nodes/tls nodes/relay>tls_relay nodes/messages nodes/calls "
        "nodes/greetings>handshake nodes/server stream/remote stream/serving_calls "
        "stream/encryption>process_tls",
    ),
    "cluster": (
        "The nodes of a cluster: who they are, who owns what, and who starts them.",
        "nodes/cluster_file nodes/membership nodes/metadata>metadata_node nodes/registration "
        "nodes/balance nodes/rates nodes/status nodes/launching nodes/local_engine>local_launcher "
        "nodes/ray_engine>ray_launcher nodes/placed_processes nodes/watched_process "
        "nodes/bound_process nodes/processors nodes/node_options",
    ),
    "data_nodes": (
        "Batches that other processes read and split: both ends.",
        "nodes/data_streams nodes/splitting nodes/grouping nodes/elements nodes/dense_half "
        "nodes/key_links nodes/feed nodes/tickets nodes/open_epochs nodes/wanted>data_request "
        "nodes/read_log nodes/sent_rows>pushed_rows",
    ),
    "embedding_nodes": (
        "Rows that other processes own: both ends.",
        "nodes/engine>nodes_engine nodes/table_writer>nodes_table_writer nodes/node_calls "
        "nodes/node_links nodes/joining>node_session nodes/recovering nodes/moving "
        "nodes/embedding>embedding_node nodes/owned_store nodes/store_copy nodes/record_layout "
        "nodes/row_arrays",
    ),
    "job": ("", "nodes/row_service job/encryption>rank_encryption job/opening>store_opening"),
    "core": ("", "core/batches>split_batches"),
    "checkpoint": ("", "checkpoint/hot_restart>kept_model"),
    "serving": ("", "serving/node>read_only_node"),
    "monitoring": (
        "The metrics of a job, and reports on its stores, for programs that show them.",
        "store/metrics store/prometheus store/report",
    ),
    "data": ("", "data/node>data_node data/stream>directory_stream"),
    "data/samples": (
        "Samples in memory: columns, keys, and which rank reads which.",
        "data/clicks data/ragged data/strings data/sharding data/elements>sample_elements",
    ),
    "stream": ("", "stream/settings>stream_settings"),
    "stream/queues": (
        "Queues of training data: append-only records, read by position.",
        "stream/queue stream/log_queue stream/log_segment stream/kafka_queue "
        "stream/opening>queue_address stream/numbered_writer stream/queue_reader stream/rows "
        "stream/dead_letters stream/joining>label_join stream/offset_committer "
        "stream/applied_ranges",
    ),
    "stream/provider": (
        "The data provider: puts samples into queues, and leases them to trainers.",
        "stream/provider stream/provider_calls stream/served_queue stream/lease_book "
        "stream/lease_length stream/routes",
    ),
    "stream/weights": (
        "The weights of a target model as they travel and lie on disk.",
        "stream/model_spec stream/weight_update stream/weight_base stream/weight_store "
        "stream/first_weights stream/observed stream/publication stream/rollback "
        "stream/wall_clock",
    ),
    "stream/sync_unit": (
        "The sync unit: applies updates to target models, and publishes their weights.",
        "stream/sync_unit stream/target_model stream/group_commit stream/saver stream/stats "
        "stream/publisher stream/publisher_clock stream/published_rows",
    ),
    "stream/trainer": (
        "A trainer of a stream: leases in, deltas or gradients out.",
        "stream/leases stream/leased_rows stream/leased_dataset stream/online stream/validate "
        "stream/fetching stream/pushing stream/pushed_deltas stream/pushed_gradients",
    ),
    "planner": (
        "The cost model: what tables add to a step, from measured constants.",
        "cli/step_costs cli/step_seconds cli/step_traffic",
    ),
    "cli/terminal": (
        "Output of the commands.",
        "cli/console cli/node_table",
    ),
    "cli/checkpoint": (
        "`tfhybrid checkpoint`.",
        "cli/checkpoint>checkpoint_command cli/difference cli/summary cli/table_export "
        "cli/table_import cli/table_rows cli/variables cli/verification",
    ),
    "cli/data": (
        "`tfhybrid data`, and the formats that options describe.",
        "cli/data>data_command cli/conversion cli/data_plan cli/distinct_ids cli/sample_format",
    ),
    "cli/doctor": (
        "`tfhybrid doctor`.",
        "cli/doctor>doctor_command cli/findings cli/host_ports cli/disk_speed",
    ),
    "cli/stream": (
        "`tfhybrid stream`.",
        "cli/stream>stream_command cli/stream_top cli/publications",
    ),
    "cli/train": (
        "`tfhybrid train`.",
        "cli/train>train_command cli/settings>train_settings cli/settings_file cli/training",
    ),
    "cli": (
        "",
        "cli/nodes>nodes_command cli/plan>plan_command cli/store>store_command cli/top>top_command",
    ),
}

# Tests follow the modules that they test.
TESTS = {
    "nodes": {
        "rpc": "test_tls",
        "cluster": "test_cluster test_cluster_file test_compose test_encrypted_cluster "
        "test_membership test_rates",
        "data_nodes": "test_data_nodes test_dense_half test_grouping test_positions "
        "test_split_roles test_staleness",
        "embedding_nodes": "test_moving test_owner_engines",
    },
    "stream": {
        "stream/queues": "test_joining>test_label_join test_log_queue test_rows",
        "stream/provider": "test_lease_book test_provider",
        "stream/weights": "test_observed",
        "stream/sync_unit": "test_policies test_saver test_target_model",
        "stream/trainer": "test_online test_replay",
    },
    "cli": {
        "cli/checkpoint": "test_deltas test_diff test_export_import test_inspect test_verify",
        "cli/data": "test_convert test_data_plan",
        "cli/doctor": "test_doctor",
        "cli/train": "test_train",
        "planner": "test_step_costs",
    },
    "data": {
        "data/samples": "test_clicks test_ragged test_strings",
        "data/formats": "test_labels test_parquet test_text_formats test_tfrecord criteo_lines",
        "data": "test_stream>test_directory_stream",
    },
    "checkpoint": {"checkpoint": "test_hot_restart>test_kept_model"},
    "serving": {"serving": "test_node>test_read_only_node"},
    "": {"config": "test_row_policy", "monitoring": "test_report"},
}


def other_moves() -> dict[str, str]:
    """Returns the new path of each other file that moves."""
    moves = {"tfhybrid/cli/step_costs.json": "tfhybrid/planner/step_costs.json"}
    for folder, rooms in TESTS.items():
        for room, names in rooms.items():
            for name in names.split():
                old, _, new = name.partition(">")
                moves[f"tests/unit/{folder}/{old}.py".replace("//", "/")] = (
                    f"tests/unit/{room}/{new or old}.py"
                )
    for file in git("ls-files", "tests/support/nodes").split():
        moves[file] = file.replace("tests/support/nodes", "tests/support/roles")
    return moves


# The suites that notice a bug, where its patch names a folder whose tests part.
SUITES = {
    "tfhybrid/data_nodes/": "tests/unit/data_nodes tests/unit/embedding_nodes",
    "tfhybrid/embedding_nodes/": "tests/unit/embedding_nodes tests/unit/cluster",
    "tfhybrid/cluster/": "tests/unit/cluster tests/unit/embedding_nodes",
    "tfhybrid/rpc/": "tests/unit/rpc tests/unit/cluster",
    "custom_ops/": "tests/unit/embedding_nodes tests/unit/data_nodes",
}

TEXTS = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".txt", ".cc", ".h", ".in", ".ipynb", ""}


def module_moves() -> dict[str, str]:
    """Returns the new path of each module that moves, both without `.py`."""
    moves = {}
    for room, (_, names) in ROOMS.items():
        for name in names.split():
            old, _, new = name.partition(">")
            moves[f"tfhybrid/{old}"] = f"tfhybrid/{room}/{new or old.rpartition('/')[2]}"
    return moves


MOVES = module_moves()
DOTTED = {old.replace("/", "."): new.replace("/", ".") for old, new in MOVES.items()}
del DOTTED["tfhybrid.config"]  # a room of that name has the same public names
BY_DOTS = re.compile(
    r"(?<![\w./])("
    + "|".join(re.escape(name) for name in sorted(DOTTED, key=len, reverse=True))
    + r")(?![\w/]|\.py)(?=(\.\w+)?)"
)
OTHERS = other_moves()
PATHS = {f"{old}.py": f"{new}.py" for old, new in MOVES.items()} | OTHERS
BY_PATH = re.compile(
    r"(?<![\w.-])("
    + "|".join(re.escape(p) for p in sorted(PATHS, key=len, reverse=True))
    + r")(?!\w)"
)
# Docstrings leave the name of the package out: `job/opening.py`.
SHORT = {
    path.removeprefix("tfhybrid/"): new.removeprefix("tfhybrid/")
    for path, new in PATHS.items()
    if path.startswith("tfhybrid/") and path.count("/") > 1
}
BY_SHORT = re.compile(
    r"(?<![\w./-])("
    + "|".join(re.escape(p) for p in sorted(SHORT, key=len, reverse=True))
    + r")(?!\w)"
)


def rewrite_text(text: str) -> str:
    """Rewrites the paths and dotted names in prose."""
    text = BY_PATH.sub(lambda found: PATHS[found[1]], text)
    text = BY_SHORT.sub(lambda found: SHORT[found[1]], text)
    return BY_DOTS.sub(lambda found: DOTTED[found[1]], text)


def rewrite_imports(text: str, tests: dict[str, str]) -> str:
    """Rewrites the import statements of a Python file; other mentions are `rewrite_text`'s."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    edits: list[tuple[int, int, str]] = []
    renamed: dict[str, str] = {}
    bound = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
    }
    bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        base = node.module or ""
        out: dict[str, list[str]] = {}
        for alias in node.names:
            whole = f"{base}.{alias.name}"
            new = DOTTED.get(whole) or tests.get(whole)
            if new:
                package, _, name = new.rpartition(".")
                known = alias.asname or alias.name
                if name != known and alias.asname is None and known not in bound:
                    if name in bound:
                        renamed[name] = f"{name}_socket"
                    renamed[known] = name
                    known = name
            else:
                package = DOTTED.get(base) or tests.get(base) or base
                name, known = alias.name, alias.asname or alias.name
            out.setdefault(package, []).append(name if name == known else f"{name} as {known}")
        indent = " " * node.col_offset
        new_text = "".join(
            f"{indent}from {package} import {', '.join(names)}\n"
            if len(names) < 4
            else f"{indent}from {package} import (\n"
            + "".join(f"{indent}    {n},\n" for n in names)
            + f"{indent})\n"
            for package, names in out.items()
        )
        old_text = "".join(lines[node.lineno - 1 : node.end_lineno])
        if {
            base: [a.name if not a.asname else f"{a.name} as {a.asname}" for a in node.names]
        } == out:
            continue
        comment = re.search(r"#.*$", lines[node.end_lineno - 1].rstrip("\n"))
        if comment:
            new_text = new_text.rstrip("\n") + f"  {comment[0]}\n"
        del old_text
        edits.append((node.lineno - 1, node.end_lineno or node.lineno, new_text))
    names = [
        (n.lineno, n.col_offset, n.id)
        for n in ast.walk(tree)
        if isinstance(n, ast.Name) and n.id in renamed
    ]
    names += [
        (n.lineno, n.col_offset, n.arg)
        for n in ast.walk(tree)
        if isinstance(n, ast.arg) and n.arg in renamed
    ]
    for line, column, name in sorted(names, reverse=True):
        raw = lines[line - 1].encode()
        assert raw[column : column + len(name)].decode() == name, (line, name)
        lines[line - 1] = (
            raw[:column] + renamed[name].encode() + raw[column + len(name) :]
        ).decode()
    for begin, end, new_text in sorted(edits, reverse=True):
        lines[begin:end] = [new_text]
    return "".join(lines)


def rewrite_lazy(path: str, text: str) -> str:
    """Rewrites the modules that a package's `lazy` names relative to itself."""
    package = path.removesuffix("/__init__.py").replace("/", ".")

    def replace(found: re.Match[str]) -> str:
        new = DOTTED.get(f"{package}.{found[2]}")
        if new is None:
            return found[0]
        inside = new.startswith(f"{package}.")
        return found[1] + '"' + (new.removeprefix(f"{package}.") if inside else new) + '"'

    text = re.sub(r'("\w+": )"(\w+)"', replace, text)
    return re.sub(r'(\*\{name: )"(\w+)"', replace, text)


def rewrite_prose(text: str) -> str:
    """Rewrites the strings and comments of a Python file."""
    lines = text.splitlines(keepends=True)
    tokens = [
        t
        for t in tokenize.generate_tokens(io.StringIO(text).readline)
        if t.type in (tokenize.STRING, tokenize.COMMENT)
    ]
    for token in reversed(tokens):
        (top, left), (bottom, right) = token.start, token.end
        new = rewrite_text(token.string)
        if new != token.string:
            joined = lines[top - 1][:left] + new + lines[bottom - 1][right:]
            lines[top - 1 : bottom] = [joined]
    return "".join(lines)


def rewrite(path: str, text: str, tests: dict[str, str]) -> str:
    """Returns a file's new text."""
    if path.endswith("scripts/move_rooms.py") or path in ("CHANGELOG.md",):
        return text
    if path.endswith(".py"):
        text = rewrite_prose(rewrite_imports(text, tests))
    if path.endswith("/__init__.py") and path.startswith("tfhybrid/"):
        text = rewrite_lazy(path, text)
    if path.startswith("tfhybrid/nodes/"):  # loggers are named after rooms
        room = PATHS.get(path, "").split("/")[1:-1]
        text = re.sub(
            r'getLogger\("tfhybrid\.nodes[\w.]*"\)',
            f'getLogger("{".".join(["tfhybrid", *room])}")',
            text,
        )
    if path == "tfhybrid/cli/step_costs.py":
        text = text.replace('files("tfhybrid.cli")', 'files("tfhybrid.planner")')
    return text if path.endswith(".py") else rewrite_text(text)


def patches() -> list[Path]:
    """Returns the deliberate bugs."""
    return [Path(p) for p in git("ls-files", "*.patch").split()]


def patched_sources() -> dict[Path, tuple[str, str, dict[str, tuple[str, str]]]]:
    """Returns each patch's head, and the files that it changes, before and after."""
    out = {}
    for patch in patches():
        text = patch.read_text()
        files = re.findall(r"^\+\+\+ b/(\S+)", text, re.M)
        if not any(file.endswith(".py") for file in files):
            continue
        with tempfile.TemporaryDirectory() as folder:
            for file in files:
                (Path(folder) / file).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / file).write_text(Path(file).read_text())
            subprocess.run(
                ["patch", "-p1", "--fuzz=0", "-s", "-i", str(patch.resolve())],
                cwd=folder,
                check=True,
            )
            changed = {
                file: (Path(file).read_text(), (Path(folder) / file).read_text()) for file in files
            }
        head = re.match(r"(?s)(.*?)(?=^(diff|---) )", text, re.M)
        out[patch] = (head[1] if head else "", text, changed)
    return out


def formatted(path: str, text: str) -> str:
    """Returns a Python file with its imports in order, as ruff leaves it."""
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        text = subprocess.run(
            ["ruff", *command, "--stdin-filename", path, "-"],
            input=text,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    return text


def difference(path: str, before: str, after: str) -> str:
    """Returns a unified diff."""
    with tempfile.TemporaryDirectory() as folder:
        for side, text in (("a", before), ("b", after)):
            file = Path(folder) / side / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        lines = subprocess.run(
            ["diff", "-U2", f"a/{path}", f"b/{path}"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        ).stdout.splitlines(True)
    return "".join(
        [
            re.sub(r"\t.*$", "", line) if line.startswith(("--- ", "+++ ")) else line
            for line in lines
        ]
    )


def with_suites(patch: str) -> str:
    """Returns a patch that names the folders in which the tests now are."""
    file = re.search(r"^\+\+\+ b/(\S+)", patch, re.M)
    suites = next((s for start, s in SUITES.items() if file and file[1].startswith(start)), "")
    return re.sub(r"^(Noticed by:) tests/unit/nodes$", rf"\1 {suites}", patch, flags=re.M)


def sort_patches() -> None:
    """Moves each deliberate bug to the folder of the room that it edits."""
    moves = {}
    for patch in patches():
        edited = re.search(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)
        room = (edited[1] if edited else "").rpartition("/")[0]
        room = re.sub(r"^custom_ops(/core(?=/))?", "native", room)
        room = re.sub(r"^tfhybrid/?", "", room) or "top"
        moves[str(patch)] = f"tests/soak/bugs/{room}/{patch.name}"
    for old, new in moves.items():
        if old != new:
            move(old, new)
    for file in git("ls-files", "*.md", "*.py").split():
        text = Path(file).read_text()
        for old, new in moves.items():
            text = text.replace(old, new)
        if text != Path(file).read_text():
            Path(file).write_text(text)


def move(old: str, new: str) -> None:
    """Moves a tracked file."""
    Path(new).parent.mkdir(parents=True, exist_ok=True)
    git("mv", old, new)


def main() -> None:
    """Renews patches, rewrites texts, moves files."""
    tests: dict[str, str] = {
        old.removesuffix(".py").replace("/", "."): new.removesuffix(".py").replace("/", ".")
        for old, new in OTHERS.items()
        if old.endswith(".py")
    }
    renewed = {}
    new_path = {**PATHS}
    for patch, (head, _, changed) in patched_sources().items():
        parts = []
        for file, (before, after) in changed.items():
            path = new_path.get(file, file)
            both = [rewrite(file, text, tests) for text in (before, after)]
            if path.endswith(".py"):
                both = [formatted(path, text) for text in both]
            parts.append(difference(path, *both))
        renewed[patch] = rewrite_text(head) + "".join(parts)
    for file in git("ls-files").split("\n"):
        path = Path(file)
        if not file or path.suffix not in TEXTS or path.is_symlink() or path in renewed:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        new_text = rewrite(file, text, tests)
        if new_text != text:
            path.write_text(new_text)
    for patch in patches():
        if patch in renewed:
            patch.write_text(with_suites(renewed[patch]))
        else:
            patch.write_text(with_suites(rewrite_text(patch.read_text())))
    for old, new in PATHS.items():
        if old != new and Path(old).exists():
            move(old, f"{new}.moving")
    for new in PATHS.values():
        if Path(f"{new}.moving").exists():
            git("mv", f"{new}.moving", new)
    for room, (doc, _) in ROOMS.items():
        face = Path("tfhybrid") / room / "__init__.py"
        if doc and not face.exists():
            face.write_text(f'"""{doc}"""\n')
    Path("tfhybrid/config/__init__.py").write_text(
        '"""The settings of tables: policies, placement, storage, optimizers."""\n\n'
        "from tfhybrid.config.table_config import TableConfig\n\n"
        '__all__ = ["TableConfig"]\n'
    )
    sort_patches()
    if Path("tfhybrid/nodes/__init__.py").exists():
        git("rm", "-q", "tfhybrid/nodes/__init__.py")
    subprocess.run(["ruff", "check", "--select", "I", "--fix", "--quiet", "."], check=False)
    subprocess.run(["ruff", "format", "--quiet", "."], check=True)
    git("add", "-A")


if __name__ == "__main__":
    main()
