"""Ports for what a test starts and that can't pick its own."""

import random
import socket
from contextlib import suppress

# Below the range that the kernel hands out to outgoing connections, and beside the lab's: what is free now
# is still free when the process that is to have it begins.
_OURS = range(10_000, 12_000)


def free_port() -> int:
    for port in random.sample(_OURS, len(_OURS)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")
