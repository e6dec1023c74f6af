"""The TLS context of a cluster's settings."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from runtime.contract.client_values import Tls
from runtime.copy.wire.errors import Unsupported


def context(tls: Tls) -> ssl.SSLContext:
    """Made once for a cluster: it reads files. What it finds wrong does not go away by itself."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.check_hostname = tls.verify and tls.check_hostname
    made.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
    try:
        _trust(made, tls)
        _identify(made, tls)
        if tls.ciphers:
            made.set_ciphers(tls.ciphers.replace(",", ":"))
    except (OSError, ValueError) as error:
        raise Unsupported("TLS", f"an ssl.* setting of the cluster does not work: {error}") from error
    return made


def _trust(made: ssl.SSLContext, tls: Tls) -> None:
    if tls.ca_pem:
        made.load_verify_locations(cadata=tls.ca_pem)
    if tls.ca_location:
        location = Path(tls.ca_location)
        if location.is_dir():
            made.load_verify_locations(capath=str(location))
        else:
            made.load_verify_locations(cafile=str(location))
    if not tls.ca_pem and not tls.ca_location:
        made.load_default_certs()


def _identify(made: ssl.SSLContext, tls: Tls) -> None:
    """The standard library reads certificates from files only, so PEM text passes through a private one."""
    if not (tls.certificate_location or tls.certificate_pem):
        return
    with tempfile.TemporaryDirectory(prefix="repl-") as private:  # mode 0700
        folder = Path(private)
        certificate = tls.certificate_location or _written(folder / "certificate.pem", tls.certificate_pem)
        key = tls.key_location or (_written(folder / "key.pem", tls.key_pem) if tls.key_pem else None)
        made.load_cert_chain(certificate, key, tls.key_password or "")


def _written(path: Path, pem: str | None) -> str:
    path.write_text(pem or "")
    return str(path)
