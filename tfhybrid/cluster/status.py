"""Status of a cluster as a web page, as JSON, and as metrics for Prometheus.

Every request needs the token of the cluster: `Authorization: Bearer TOKEN`, or `?token=TOKEN`.
"""

from __future__ import annotations

import dataclasses
import hmac
import html
import json
import logging
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tfhybrid.cluster.membership import Membership
from tfhybrid.rpc import tls_relay
from tfhybrid.settings import TlsFiles

_log = logging.getLogger("tfhybrid.cluster")

_STYLE = (
    ":root{color-scheme:light;--good:#070;--bad:#b00}"
    "@media(prefers-color-scheme:dark){:root{color-scheme:dark;--good:#7d7;--bad:#f88}}"
    "body{font:14px sans-serif;margin:2em}div{overflow-x:auto}"
    "table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:.3em .8em;border-bottom:1px solid #8888;text-align:left;white-space:nowrap}"
    "td.number{text-align:right}.lost{color:var(--bad)}.ready{color:var(--good)}"
)
_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>"
    "<meta name=viewport content='width=device-width'>"
    "<title>tfhybrid nodes</title><style>{style}</style><h1>Nodes</h1>"
    "<p>Allocation epoch <b id=epoch>{epoch}</b></p>{nodes}<h2>Allocation</h2>{slots}</html>"
)


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


def page_of(status: Mapping[str, Any]) -> str:
    """Returns the status of a cluster as an HTML page that reloads itself every 2 s.

    Args:
        status: Result of `status_of`.
    """
    columns = sorted({name for node in status["nodes"] for name in node["numbers"]})
    rows = [
        [
            _cell(node["name"]),
            _cell(node["role"]),
            f"<td class={node['state']}>{html.escape(node['state'])}</td>",
            _cell(f"{node['seconds']:.0f} s"),
            _cell(node["address"]),
            *(_number(node["numbers"].get(name)) for name in columns),
        ]
        for node in status["nodes"]
    ]
    slots = [
        [_cell(each["node"]), _number(each["first"]), _number(each["slots"])]
        for each in status["allocation"]
    ]
    return _PAGE.format(
        style=_STYLE,
        epoch=status["epoch"],
        nodes=_table(
            [
                *("node", "role", "state", "since", "address"),
                *(name.replace("_per_second", "/s").replace("_", " ") for name in columns),
            ],
            rows,
        ),
        slots=_table(["node", "first slot", "slots"], slots),
    )


def metrics_of(status: Mapping[str, Any]) -> str:
    """Returns the status of a cluster in the text format of Prometheus.

    Args:
        status: Result of `status_of`.
    """
    lines = [
        "# HELP tfhybrid_epoch Allocation epoch.",
        "# TYPE tfhybrid_epoch counter",
        f"tfhybrid_epoch {status['epoch']}",
        "# HELP tfhybrid_node_ready 1 if the node is ready, otherwise 0.",
        "# TYPE tfhybrid_node_ready gauge",
    ]
    labels = {
        node["name"]: f'{{node="{node["name"]}",role="{node["role"]}"}}' for node in status["nodes"]
    }
    for node in status["nodes"]:
        lines.append(f"tfhybrid_node_ready{labels[node['name']]} {int(node['state'] == 'ready')}")
    for name in sorted({name for node in status["nodes"] for name in node["numbers"]}):
        lines.append(f"# TYPE tfhybrid_node_{name} gauge")
        for node in status["nodes"]:
            if name in node["numbers"]:
                value = node["numbers"][name]
                lines.append(f"tfhybrid_node_{name}{labels[node['name']]} {value:g}")
    return "\n".join(lines) + "\n"


def _refuse(address: tuple[str, int], why: str) -> None:
    _log.warning("A request for the status page from %s port %d is refused: %s", *address[:2], why)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: tuple[str, int]) -> None:
        error = sys.exc_info()[1]
        why = tls_relay.reason(error) if isinstance(error, OSError) else repr(error)
        _refuse(client_address, why)


class StatusServer:
    """HTTP server of the status page, on threads of its own.

    The server serves `/`, `/status.json` and `/metrics`, and listens once it is constructed.

    Args:
        address: Host and port to listen on; port 0 means a free one.
        token: Secret of the cluster, which clients must send.
        status: Function that returns the result of `status_of`. Any thread may call it.
        tls: Certificate files for HTTPS; clients need no certificate, because the token identifies
            them. Default: `None`, plain HTTP.

    Attributes:
        port: Port on which the server listens.

    Raises:
        OSError: The address is not available, or a certificate file cannot be used.
    """

    def __init__(
        self,
        address: tuple[str, int],
        token: str,
        status: Callable[[], Mapping[str, Any]],
        tls: TlsFiles | None = None,
    ) -> None:
        pages: dict[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
            "/": ("text/html; charset=utf-8", page_of),
            "/status.json": ("application/json", json.dumps),
            "/metrics": ("text/plain; version=0.0.4", metrics_of),
        }

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = parse_qs(url.query).get("token", [""])[0]
                header = self.headers.get("Authorization", "").removeprefix("Bearer ")
                if not hmac.compare_digest((query or header).encode(), token.encode()):
                    _refuse(self.client_address, "it does not show the token")
                    self.send_error(403, "The token of the cluster is missing or wrong")
                elif url.path not in pages:
                    self.send_error(404, f"The pages are {', '.join(pages)}")
                else:
                    kind, form = pages[url.path]
                    content = form(status()).encode()
                    self.send_response(200)
                    self.send_header("Content-Type", kind)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass  # the URL may contain the token

            def send_error(self, code: int, *more: str | None) -> None:
                if code == 400:  # the client sent no HTTP request
                    _refuse(self.client_address, "it does not speak HTTP")
                super().send_error(code, *more)

        self._server = _Server(address, Handler)
        if tls is not None:
            secure = tls_relay.context(tls_relay.ACCEPT, *dataclasses.astuple(tls))
            secure.verify_mode = ssl.CERT_NONE
            # The connection's own thread makes the handshake when it reads the first byte.
            self._server.socket = secure.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops serving and closes the port; waits for the server's thread."""
        self._server.shutdown()
        self._server.server_close()


def _table(head: list[str], rows: list[list[str]]) -> str:
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<div><table><tr>{cells}</tr>{body}</table></div>"


def _cell(text: str) -> str:
    return f"<td>{html.escape(text)}</td>"


def _number(value: float | None) -> str:
    return "<td></td>" if value is None else f"<td class=number>{value:,.0f}</td>"
