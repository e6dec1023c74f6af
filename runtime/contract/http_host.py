"""Reads the Host header of a request: whether it names this server, or another one.

A hostile page can give its own name the address of this server (DNS rebinding). A browser then reads the
server for the page, and sends the page's name as the Host.
"""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit


def is_loopback(address: str) -> bool:
    """Returns whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def names_this_server(host: str, names: Collection[str] = ()) -> bool:
    """Returns whether a Host header names this server, which is also known by `names`.

    An address does: rebinding needs a name.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name == "localhost" or name in (listed.lower() for listed in names):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
