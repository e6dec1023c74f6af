"""Reads web addresses strictly, so that every client finds the same host in them."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

PORTS: Final = {"https": 443, "http": 80}
_LOOPBACK: Final = ("localhost", "::1")
# No user, no backslash, no spaces.
_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}))?"
    r"(?P<path>[/?][!-\[\]-~]*)?",
    re.IGNORECASE | re.ASCII,
)


class WebAddress(Struct, frozen=True):
    """The address that requests go to. Without `tls`, what they carry travels in clear text.

    `path` is what follows the host and the port.
    """

    host: str
    port: int
    tls: bool
    path: str = ""

    @property
    def on_this_machine(self) -> bool:
        return self.host.lower() in _LOOPBACK or self.host.startswith("127.")


def web_address(url: str) -> WebAddress | None:
    """Returns the parts of an address; None where it is no plain web address."""
    parts = _URL.fullmatch(url)
    if parts is None:
        return None
    scheme = parts["scheme"].lower()
    port = int(parts["port"]) if parts["port"] else PORTS[scheme]
    return WebAddress(parts["host"].strip("[]"), port, scheme == "https", parts["path"] or "")
