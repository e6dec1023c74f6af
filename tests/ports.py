"""Ports for what a test starts and that can't pick its own."""

import os
import random
import socket
from contextlib import suppress

# Below the range that the kernel hands out to outgoing connections, and beside the lab's: what is free now
# is still free when the process that is to have it begins. Each worker has some of its own.
_EACH = 200
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
_given: set[int] = set()


def free_port() -> int:
    """Never the same twice."""
    ours = range(10_000 + _WORKER * _EACH, 10_000 + (_WORKER + 1) * _EACH)
    for port in random.sample(ours, len(ours)):
        if port in _given:
            continue
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _given.add(port)
            return port
    raise AssertionError("no port is free")
