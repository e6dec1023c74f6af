"""Checks addresses of OAUTHBEARER token endpoints: https, unless the operator allows http. It is pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

TOKEN_ENDPOINT_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a key
ALLOW_INSECURE = "REPL_ALLOW_INSECURE_TOKEN_ENDPOINT"


def token_endpoint_problem(url: str | None, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Returns what is wrong with the address and what to do, or None where secrets may be sent to it.

    librdkafka sends the client's secret to http addresses without a warning: this check comes before it.
    """
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        host, secret, _ = parts.hostname, parts.password or parts.username, parts.port
    except ValueError:
        return "is not an address", "write https://host/path"
    if parts.scheme not in ("https", "http") or not host:
        return "is not an https address", "write https://host/path"
    if secret:
        return "holds a user name or a password", "write them as sasl.oauthbearer.client.id and client.secret"
    if parts.scheme == "http" and environ.get(ALLOW_INSECURE) != "1":
        return (
            "is not https, so the client's secret would travel in clear text",
            f"use https; for a trial, set the environment variable {ALLOW_INSECURE}=1",
        )
    return None
