"""TLS as the cluster's settings want it, and what a failed handshake means."""

import contextlib
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from planner.observe.wire.failure import Refused
from runtime.contract.client_values import Tls

# OpenSSL's verification codes that mean: signed by somebody we don't know.
_UNKNOWN_ISSUER = frozenset({2, 18, 19, 20, 21})
_EXPIRED, _NOT_YET = 10, 9
_WRONG_HOST = frozenset({62, 64})


def context_of(tls: Tls) -> ssl.SSLContext:
    """Refused where a file can't be read or is not what it should be."""
    context = ssl.create_default_context(
        cafile=None if tls.ca_location in (None, "probe") else tls.ca_location
    )
    if tls.ca_pem is not None:
        context.load_verify_locations(cadata=tls.ca_pem)
    context.check_hostname = tls.verify and tls.check_hostname
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    if tls.ciphers is not None:
        context.set_ciphers(tls.ciphers)
    with _as_file(tls.certificate_location, tls.certificate_pem) as certificate:
        if certificate is not None:
            with _as_file(tls.key_location, tls.key_pem) as key:
                # Without a password OpenSSL would ask for one at the terminal.
                context.load_cert_chain(certificate, key, lambda: tls.key_password or "")
    return context


def tls_context(tls: Tls) -> ssl.SSLContext:
    try:
        return context_of(tls)
    except (OSError, ValueError) as wrong:
        files = ", ".join(
            filter(None, (tls.ca_location, tls.certificate_location, tls.key_location, "the PEM text given"))
        )
        raise Refused(
            f"the TLS settings can't be used ({_short(wrong)})",
            f"look at the client's ssl.… settings: {files}",
        ) from None


@contextlib.contextmanager
def _as_file(location: str | None, pem: str | None) -> Iterator[str | None]:
    """Python reads certificates from files alone; a text is put into one that only we can read."""
    if location is not None or pem is None:
        yield location
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.pem"
        path.touch(mode=0o600)
        path.write_text(pem)
        yield str(path)


def refusal(where: str, host: str, wrong: ssl.SSLError) -> Refused | None:
    """What the handshake's failure says for certain; None where the other side may not speak TLS at all."""
    if isinstance(wrong, ssl.SSLCertVerificationError):
        return _untrusted(where, host, wrong)
    reason = (wrong.reason or "").upper()
    if "CERTIFICATE_REQUIRED" in reason or "BAD_CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return Refused(
            f"{where} wants a client certificate that it trusts",
            "set ssl.certificate.location and ssl.key.location",
        )
    if "ALERT" in reason:
        return Refused(
            f"{where} refused the TLS handshake ({_short(wrong)})",
            "look at the client certificate, ssl.cipher.suites and the broker's ssl.enabled.protocols",
        )
    return None


def _untrusted(where: str, host: str, wrong: ssl.SSLCertVerificationError) -> Refused:
    code = wrong.verify_code
    if code in _UNKNOWN_ISSUER:
        return Refused(
            f"the TLS certificate of {where} is not trusted ({wrong.verify_message})",
            "set ssl.ca.location to the PEM file of the authority that signed it",
        )
    if code in _WRONG_HOST:
        return Refused(
            f"the TLS certificate of {where} is not for {host}",
            "use a bootstrap name that stands in the certificate, "
            "or set ssl.endpoint.identification.algorithm: none",
        )
    if code in (_EXPIRED, _NOT_YET):
        return Refused(
            f"the TLS certificate of {where} is not valid now ({wrong.verify_message})",
            "renew it at the broker; if it is valid, this machine's clock is wrong",
        )
    return Refused(f"the TLS certificate of {where} is not accepted ({wrong.verify_message})")


def _short(wrong: Exception) -> str:
    if isinstance(wrong, FileNotFoundError) and wrong.filename:
        return f"{wrong.filename} is not there"
    if isinstance(wrong, ssl.SSLError) and wrong.reason:
        return wrong.reason.lower().replace("_", " ")
    return str(wrong)
