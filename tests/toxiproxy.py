"""toxiproxy: a proxy that delays, narrows and resets what goes through it, built by `go install`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Final

from runtime.machine import cache_folder
from tests.labs import WITH_PARENT
from tests.ports import free_port
from tests.records import wait_for

_VERSION: Final = "v2.12.0"
_MODULE: Final = f"github.com/Shopify/toxiproxy/v2/cmd/server@{_VERSION}"
_STREAMS: Final = ("downstream", "upstream")
_TOLD_WITHIN_S: Final = 5.0


class Proxies:
    """One server with a proxy for each of a cluster's brokers. A toxic falls on all of them.

    toxiproxy changes nothing while data waits in it for someone who does not read, a frozen process for one.
    A server that does not do what it is told is killed and begun anew, which breaks every connection.
    """

    def __init__(self, command: Sequence[str], api: str, upstreams: Mapping[str, str]) -> None:
        self._command = command
        self._api = api
        self._upstreams = upstreams
        self._begin()

    def delay(self, ms: int, jitter_ms: int) -> None:
        """Of the answers."""
        self._toxic("latency", {"latency": ms, "jitter": jitter_ms}, _STREAMS[:1])

    def narrow(self, kb_per_s: int) -> None:
        self._toxic("bandwidth", {"rate": kb_per_s}, _STREAMS)

    def reset(self) -> None:
        """Every connection, and every new one until `heal`."""
        self._toxic("reset_peer", {"timeout": 0}, _STREAMS[:1])

    def heal(self) -> None:
        self._tell(lambda: _post(f"{self._api}/reset", {}))

    def close(self) -> None:
        self._server.kill()
        self._server.wait()

    def _toxic(self, kind: str, attributes: Mapping[str, int], streams: Sequence[str]) -> None:
        def add() -> None:
            for number, stream in product(range(len(self._upstreams)), streams):
                toxic = {"type": kind, "name": f"{kind}-{stream}", "stream": stream, "attributes": attributes}
                _post(f"{self._api}/proxies/link-{number}/toxics", toxic)

        self._tell(add)

    def _tell(self, what: Callable[[], None]) -> None:
        try:
            what()
        except OSError:
            self.close()
            self._begin()
            what()

    def _begin(self) -> None:
        self._server = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: _answers(self._api), timeout=60)
            for number, (listen, upstream) in enumerate(self._upstreams.items()):
                proxy = {"name": f"link-{number}", "listen": listen, "upstream": upstream, "enabled": True}
                _post(f"{self._api}/proxies", proxy)
        except BaseException:
            self.close()
            raise


def toxiproxy() -> Path | None:
    """The server's binary, built once into the cache; None where there is no Go."""
    binary = cache_folder() / f"toxiproxy-{_VERSION}" / "server"
    if binary.is_file():
        return binary
    go = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin"]))
    if go is None:
        return None
    environ = {**os.environ, "GOBIN": str(binary.parent), "GOFLAGS": "-mod=mod"}
    done = subprocess.run([go, "install", _MODULE], env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"toxiproxy could not be built: {done.stderr.strip()[-300:]}", flush=True)
        return None
    return binary


@contextmanager
def proxied(
    binary: Path, upstreams: Mapping[str, str], host: str = "127.0.0.1", prefix: Sequence[str] = ()
) -> Iterator[Proxies]:
    """`upstreams`: the address that clients are told → where the broker really listens. `prefix` puts the
    server where `host` is.
    """
    port = free_port()
    command = [*prefix, *WITH_PARENT, str(binary), "-host", host, "-port", str(port)]
    proxies = Proxies(command, f"http://{host}:{port}", upstreams)
    try:
        yield proxies
    finally:
        proxies.close()


def _post(url: str, body: Mapping[str, object]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_TOLD_WITHIN_S):
        return


def _answers(api: str) -> bool:
    try:
        with urllib.request.urlopen(f"{api}/version", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False
