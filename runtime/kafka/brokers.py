"""This module checks the broker addresses that a cluster announces, because credentials are sent to them."""

from __future__ import annotations

import re

from runtime.kafka.auth.login import quoted

MAX_BROKERS = 10_000
MAX_BROKER_LIST_BYTES = 1 << 20
"""The largest metadata answer that lists brokers and no topic."""

_HOST_NAME = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,253}[A-Za-z0-9_.])?"  # a name or an IPv4 address
    r"|[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9_.-]{1,32})?"  # an IPv6 address, perhaps with its zone
)


def check_address(node: int, host: str, port: int) -> None:
    """Raises ValueError for an announced address that cannot be the address of a host."""
    if len(host) > 255 or _HOST_NAME.fullmatch(host) is None:
        raise ValueError(f"broker {node} is announced as '{quoted(host[:64])}', which is no host name")
    if not 0 < port < 65_536:
        raise ValueError(f"broker {node} is announced with port {port}; ports go from 1 to 65535")
