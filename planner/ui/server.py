"""Starts the server: the address, the port, the token, and a clean end at Ctrl-C."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from planner.model.diagnostic import Diagnostic, Failure, error
from planner.ui.access import AccessPolicy, read_token
from planner.ui.app import Site, application
from planner.ui.connections import KEEP_ALIVE_S, LIMITS, BoundedConnection, ConnectionLimits
from planner.ui.feed import StatusFeed
from planner.workflows.audit.replication_status import topology_stamp, watch_status, watched_topology
from planner.workflows.interaction import traceback_reporter
from planner.workflows.requests import TopologyRequest
from planner.workflows.topology import launcher_home
from runtime.contract.http_host import is_loopback

_BACKLOG = 128
_END_WITHIN_S = 3
_HEADER_BYTES = 32_768
LOOPBACK = "127.0.0.1"


def access_policy(
    address: str = LOOPBACK, token_file: Path | None = None, hosts: Sequence[str] = ()
) -> AccessPolicy:
    """Returns the access policy of a server at this address. `hosts` are names that browsers may call it by.

    Failure if other machines could reach the pages without a token.
    """
    token = read_token(token_file) if token_file is not None else None
    if token is None and not is_loopback(address):
        raise Failure(
            error(
                f"{address} can be reached from other machines, so the pages need a token",
                "add --token-file FILE, and put TLS in front of the server: token and pages travel in"
                " clear text; or listen on 127.0.0.1 and reach it through ssh -L",
            )
        )
    names = {socket.gethostname().lower(), *(host.lower() for host in hosts)}
    return AccessPolicy(token, tuple(sorted(names)))


def listen(port: int, address: str = LOOPBACK) -> socket.socket:
    """Returns the listening socket. Failure says what is wrong with the address or the port."""
    try:
        addresses = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as wrong:
        why = getattr(wrong, "strerror", None) or str(wrong)
        raise Failure(error(f"--address {address}: {why}", "name an address of this machine")) from None
    family, kind, protocol, _, where = addresses[0]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(where)
        made.listen(_BACKLOG)
    except OSError as wrong:
        made.close()
        raise Failure(_refused(port, address, wrong)) from None
    made.setblocking(False)
    return made


def _refused(port: int, address: str, wrong: OSError) -> Diagnostic:
    where = f"{address}:{port}"
    if wrong.errno == errno.EADDRINUSE:
        free = "name another: --port 8081, or --port 0 for one that is free"
        return error(f"{where} is taken: another process listens there", free)
    if wrong.errno == errno.EACCES:
        return error(f"{where}: this user may not listen there", "name a port above 1023: --port 8080")
    if wrong.errno == errno.EADDRNOTAVAIL:
        return error(f"{address} is no address of this machine", "leave out --address to use 127.0.0.1")
    return error(f"{where}: {wrong.strerror}", "name another --address or --port")


def url_of(listening: socket.socket) -> str:
    """Returns the address to open. For all addresses it is the loopback one."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - it is compared, not bound
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class Server(uvicorn.Server):
    """Ends the event streams first: the server would wait for them otherwise."""

    def __init__(self, app: ASGIApp, ended: Callable[[], None], limits: ConnectionLimits = LIMITS) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=cast(Any, partial(BoundedConnection, limits)),
                log_config=None,  # errors go to stderr, and no request is logged: URLs hold names
                access_log=False,
                lifespan="on",
                ws="none",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_END_WITHIN_S,
                timeout_keep_alive=KEEP_ALIVE_S,
                h11_max_incomplete_event_size=_HEADER_BYTES,
            )
        )
        self._ended = ended

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ended()
        await super().shutdown(sockets)


def serve(site: Site, listening: socket.socket) -> None:
    """Serves until it is interrupted. The interruption is raised again when everything has ended."""
    server = Server(application(site), site.end)
    asyncio.run(server.serve(sockets=[listening]))


def site_of(
    request: TopologyRequest,
    policy: AccessPolicy,
    every_ms: int,
    show: Callable[[str], None],
    reports: Path | None,
) -> Site:
    """Returns what the pages show of a topology. Failure where it has errors, or a secret is missing.

    `show` receives the traceback of an unexpected error where it can't be kept in a file. `reports` is the
    folder of the reports of drills, where it is not the default one.
    """
    watched_topology(request)
    report = traceback_reporter(launcher_home(request.path) / "errors", f"ui-{os.getpid()}", show)
    feed = StatusFeed(partial(watch_status, request, every_ms), partial(topology_stamp, request), report)
    return Site(request, feed, policy, report, reports)
