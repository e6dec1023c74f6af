"""A link with 50 ms of delay to the source: toxiproxy, built by `go install`; without Go it is left out."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from runtime.lab.jars import cache_folder
from tests.labs import WITH_PARENT

DELAY_MS: Final = 50
JITTER_MS: Final = 3
LISTENER: Final = "LINK"
_VERSION: Final = "v2.12.0"
_MODULE: Final = f"github.com/Shopify/toxiproxy/v2/cmd/server@{_VERSION}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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
def delayed(binary: Path, upstreams: Mapping[str, str]) -> Iterator[None]:
    """`upstreams`: the address that clients are told → where the broker really listens."""
    api = f"http://127.0.0.1:{(port := free_port())}"
    command = [*WITH_PARENT, str(binary), "-host", "127.0.0.1", "-port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait(f"{api}/version")
            for number, (listen, upstream) in enumerate(upstreams.items()):
                name = f"link-{number}"
                proxy = {"name": name, "listen": listen, "upstream": upstream, "enabled": True}
                _post(f"{api}/proxies", proxy)
                attributes = {"latency": DELAY_MS, "jitter": JITTER_MS}
                toxic = {"type": "latency", "stream": "downstream", "attributes": attributes}
                _post(f"{api}/proxies/{name}/toxics", toxic)
            yield
        finally:
            server.kill()


def _post(url: str, body: Mapping[str, object]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10):
        return


def _wait(url: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
