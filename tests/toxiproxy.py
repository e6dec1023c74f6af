"""toxiproxy: a proxy that delays, narrows and resets what goes through it, built by `go install`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runtime.lab.jars import cache_folder
from tests.labs import WITH_PARENT
from tests.ports import free_port
from tests.records import wait_for

_VERSION: Final = "v2.12.0"
_MODULE: Final = f"github.com/Shopify/toxiproxy/v2/cmd/server@{_VERSION}"
_STREAMS: Final = ("downstream", "upstream")


@dataclass(frozen=True, slots=True)
class Proxies:
    """One server with a proxy for each of a cluster's brokers. A toxic falls on all of them."""

    api: str
    count: int

    def delay(self, ms: int, jitter_ms: int) -> None:
        """Of the answers."""
        self._toxic("latency", {"latency": ms, "jitter": jitter_ms}, _STREAMS[:1])

    def narrow(self, kb_per_s: int) -> None:
        self._toxic("bandwidth", {"rate": kb_per_s}, _STREAMS)

    def reset(self) -> None:
        """Every connection, and every new one until `heal`."""
        self._toxic("reset_peer", {"timeout": 0}, _STREAMS[:1])

    def heal(self) -> None:
        _post(f"{self.api}/reset", {})

    def _toxic(self, kind: str, attributes: Mapping[str, int], streams: Sequence[str]) -> None:
        for number in range(self.count):
            for stream in streams:
                toxic = {"type": kind, "name": f"{kind}-{stream}", "stream": stream, "attributes": attributes}
                _post(f"{self.api}/proxies/link-{number}/toxics", toxic)


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
    proxies = Proxies(f"http://{host}:{(port := free_port())}", len(upstreams))
    command = [*prefix, *WITH_PARENT, str(binary), "-host", host, "-port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: _answers(proxies.api), timeout=60)
            for number, (listen, upstream) in enumerate(upstreams.items()):
                proxy = {"name": f"link-{number}", "listen": listen, "upstream": upstream, "enabled": True}
                _post(f"{proxies.api}/proxies", proxy)
            yield proxies
        finally:
            server.kill()


def _post(url: str, body: Mapping[str, object]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60):
        return


def _answers(api: str) -> bool:
    try:
        with urllib.request.urlopen(f"{api}/version", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False
