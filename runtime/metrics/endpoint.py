"""Serves the metrics of a job over HTTP, from the newest snapshot and the slots' reports."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from typing import ClassVar
from urllib.parse import urlsplit

from prometheus_client import Metric, MetricsHandler
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from runtime.contract.http_host import is_loopback, names_this_server
from runtime.metrics.families import FAMILIES, UP, Scrape
from runtime.metrics.snapshot import JobSnapshot, SlotMetrics

_POLL_S = 0.1
_CONNECTION_TIMEOUT_S = 10.0


class JobCollector(Collector):
    """A JobCollector collects the metrics of one job; the endpoint's threads call it.

    `picture` returns the newest snapshot, or None before the first one.
    """

    def __init__(
        self,
        picture: Callable[[], JobSnapshot | None],
        book: SlotMetrics,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._picture = picture
        self._book = book
        self._clock = clock
        self._ticks = ticks

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics; before the first snapshot it yields only that the job is not up."""
        picture = self._picture()
        if picture is None:
            yield GaugeMetricFamily(UP.name, UP.help, value=0)
            return
        book, now_s, ticks = self._book, self._clock(), self._ticks()
        copies = dict(book.flows), dict(book.partitions), dict(book.incidents)
        scrape = Scrape(picture, *copies, now_s, ticks)
        yield from (family.of(scrape) for family in FAMILIES)


class _Handler(MetricsHandler):
    """A handler serves one connection, and closes it after ten seconds without progress."""

    timeout: ClassVar[float] = _CONNECTION_TIMEOUT_S
    unready: ClassVar[Callable[[], list[str]]]
    any_host: ClassVar[bool]

    def do_GET(self) -> None:  # noqa: N802 - the standard library's name
        host = self.headers.get("Host", "")
        if host and not self.any_host and not names_this_server(host):
            self._respond(HTTPStatus.MISDIRECTED_REQUEST, ["ask for it by its address"])
            return
        match urlsplit(self.path).path:
            case "/metrics":
                super().do_GET()
            case "/healthz":
                self._respond(HTTPStatus.OK, ["alive"])
            case "/readyz":
                reasons = type(self).unready()
                self._respond(
                    HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK, reasons or ["ready"]
                )
            case _:
                self._respond(HTTPStatus.NOT_FOUND, ["/metrics", "/healthz", "/readyz"])

    def _respond(self, status: HTTPStatus, lines: list[str]) -> None:
        text = "".join(f"{line}\n" for line in lines).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class _Server(ThreadingMixIn, TCPServer):
    """The server handles each connection in a daemon thread."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, host: str, port: int, handler: type[_Handler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores the error of a client that disconnected."""


class MetricsEndpoint:
    """A MetricsEndpoint serves from its creation until `close`.

    On loopback, a request whose Host names another server is refused: a page in a browser of this machine
    could read the metrics otherwise (DNS rebinding). Elsewhere the whole network may read them, by any name.
    The constructor raises OSError where it can't listen.
    """

    def __init__(
        self, host: str, port: int, collectors: list[Collector], unready: Callable[[], list[str]]
    ) -> None:
        registry = CollectorRegistry()
        for collector in collectors:
            registry.register(collector)
        members = {
            "registry": registry,
            "unready": staticmethod(unready),
            "any_host": not is_loopback(host),
        }
        handler = type("Handler", (_Handler,), members)
        self._server = _Server(host, port, handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops the server and waits for its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
