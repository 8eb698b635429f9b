"""Status of a cluster as a web page, as JSON, and as metrics for Prometheus.

Every request needs the token of the cluster: `Authorization: Bearer TOKEN`, or `?token=TOKEN`.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from tfhybrid.cluster.membership import Membership
from tfhybrid.monitoring.metrics import Metric
from tfhybrid.monitoring.prometheus import metrics_app
from tfhybrid.monitoring.web_server import App, WebServer, refuse
from tfhybrid.settings import TlsFiles

Status = Mapping[str, Any]

_LABELS = ("node", "role")
_EPOCH = Metric("epoch", "gauge", "Allocation epoch.")
_READY = Metric("node_ready", "gauge", "1 if the node is ready, otherwise 0.", _LABELS)


def status_of(
    membership: Membership, numbers: Mapping[str, Mapping[str, float]]
) -> dict[str, object]:
    """Returns the status of a cluster as a JSON-serializable object.

    Args:
        membership: State of the metadata node.
        numbers: Numbers that each node has reported, by node and name.

    Returns:
        `epoch`, the allocation epoch; `nodes`, each with name, role, state, seconds in it, address
        and numbers; `allocation`, the node, first slot and number of slots of each shard;
        `missing`, the names of the owners that are not ready.
    """
    view = membership.view
    nodes = [
        {
            "name": node.name,
            "role": node.role,
            "state": node.state.value,
            "seconds": round(membership.seconds_in_state(node.name), 1),
            "address": f"{node.address[0]}:{node.address[1]}",
            "numbers": dict(numbers.get(node.name, {})),
        }
        for node in sorted(view.nodes.values(), key=lambda node: (node.role, node.name))
    ]
    slots = [{"node": name, "first": first, "slots": count} for name, first, count in view.slots()]
    return {"epoch": view.epoch, "nodes": nodes, "allocation": slots, "missing": view.missing()}


def reading_of(status: Status) -> Iterator[tuple[Metric, Any]]:
    """Yields the metrics of a cluster: its allocation epoch, and what its nodes have reported.

    Args:
        status: Result of `status_of`.

    Yields:
        A metric, and its values by name and role of the node.
    """
    yield _EPOCH, {"": status["epoch"]}
    nodes = {(node["name"], node["role"]): node for node in status["nodes"]}
    yield _READY, {labels: float(node["state"] == "ready") for labels, node in nodes.items()}
    for name in sorted({name for node in nodes.values() for name in node["numbers"]}):
        numbers = {
            labels: node["numbers"][name]
            for labels, node in nodes.items()
            if name in node["numbers"]
        }
        yield Metric(f"node_{name}", "gauge", f"{name} of the node.", _LABELS), numbers


class StatusServer(WebServer):
    """HTTP server of a cluster's status, on threads of its own.

    The server serves `/`, a page that shows `/status.json`; `/status.json`; and `/metrics`.

    Args:
        address: Host and port to listen on; port 0 means a free one.
        token: Secret of the cluster, which clients must send.
        status: Function that returns the result of `status_of`. Any thread may call it.
        tls: Certificate files for HTTPS; clients need no certificate, because the token identifies
            them. Default: `None`, plain HTTP.

    Raises:
        OSError: The address is not available, or a certificate file cannot be used.
    """

    def __init__(
        self,
        address: tuple[str, int],
        token: str,
        status: Callable[[], Status],
        tls: TlsFiles | None = None,
    ) -> None:
        page = Path(__file__).with_suffix(".html").read_bytes()
        pages: dict[str, App] = {
            "/": _app("200 OK", "text/html; charset=utf-8", lambda: page),
            "/status.json": _app(
                "200 OK", "application/json", lambda: json.dumps(status()).encode()
            ),
            "/metrics": metrics_app(lambda: reading_of(status())),
        }
        absent = _error("404 Not Found", f"The pages are {', '.join(pages)}")
        forbidden = _error("403 Forbidden", "The token of the cluster is missing or wrong")

        def app(environ: dict[str, str], start_response: Any) -> Any:
            query = parse_qs(environ["QUERY_STRING"]).get("token", [""])[0]
            header = environ.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer ")
            if hmac.compare_digest((query or header).encode(), token.encode()):
                return pages.get(environ["PATH_INFO"], absent)(environ, start_response)
            refuse(environ["REMOTE_ADDR"], "it does not show the token")
            return forbidden(environ, start_response)

        super().__init__(app, address, tls)


def _app(code: str, kind: str, content: Callable[[], bytes]) -> App:
    def app(_: Mapping[str, str], start_response: Any) -> list[bytes]:
        start_response(code, [("Content-Type", kind)])
        return [content()]

    return app


def _error(code: str, text: str) -> App:
    return _app(code, "text/plain; charset=utf-8", f"{text}\n".encode)
