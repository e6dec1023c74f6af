"""This module makes the TLS context of a cluster's settings: TLS 1.2 or newer, with the configured trust."""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from runtime.contract.client.settings import Tls
from runtime.kafka.auth.key_stores import authorities, identity
from runtime.kafka.auth.login import LoginError

PROBE = "probe"
"""The value of `ssl.ca.location` that means: the system's authorities, as if it were not set."""

# OpenSSL finds an authority in a folder by its subject's hash: `openssl rehash` makes these names.
_HASHED = re.compile(r"[0-9a-f]{8}\.[0-9]+")
# The validity of a certificate in DER: two times of 12 or 14 digits.
_VALIDITY = re.compile(rb"(?:\x17\x0d\d{12}|\x18\x0f\d{14})Z(?:\x17\x0d|\x18\x0f(?=\d{14}))(\d+)Z")
# Distributions keep their authorities here; used where Python's own OpenSSL names no existing place.
_SYSTEM = (
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class TlsContexts:
    """Keeps the context of a cluster's settings, and makes a new one when a file of them was replaced.

    Certificates are renewed on disk while a process runs. While renewed files do not fit together, as between
    the writing of a certificate and of its key, the context before them stays; `problem` says what is wrong.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._made_from = self._stamps()
        self._context = tls_context(tls)
        self.problem = ""

    def current(self) -> ssl.SSLContext:
        if (stamps := self._stamps()) != self._made_from:
            try:
                self._context = tls_context(self._tls)
                self._made_from, self.problem = stamps, ""
            except LoginError as error:
                self.problem = f"the renewed files are not used: {error.why}"
        return self._context

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Returns what changes when a file is written or replaced; None for a file that is not there."""
        stamps: list[tuple[int, int, int] | None] = []
        for path in self._files():
            try:
                status = path.stat()
                stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
            except OSError:
                stamps.append(None)
        return tuple(stamps)

    def _files(self) -> Iterator[Path]:
        """Yields every file of the settings, those in a folder of authorities too."""
        for name in self._tls.files:
            path = Path(name)
            yield path
            with suppress(OSError):
                yield from sorted(path.iterdir())


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Makes the context, once for a cluster, because it reads files.

    Raises LoginError with the wrong setting.

    Only the authorities of `ssl.ca.pem` and `ssl.ca.location` are trusted; the system's authorities are
    trusted only where neither is set.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.verify and tls.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
    _trust(context, tls)
    _identify(context, tls)
    if tls.ciphers:
        try:
            context.set_ciphers(tls.ciphers.replace(",", ":"))
        except ssl.SSLError:
            raise _unusable("ssl.cipher.suites", "no cipher of OpenSSL has such a name") from None
    return context


def certificate_end(tls: Tls) -> datetime | None:
    """Returns when the client's certificate ends or has ended; None where there is none that can be read."""
    try:
        if tls.keystore is not None:
            text, _ = identity(tls.keystore)
        else:
            text = tls.certificate_pem or Path(tls.certificate_location or "").read_text()
        certificate = text[: text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)]
        validity = _VALIDITY.search(
            ssl.PEM_cert_to_DER_cert(certificate[certificate.index(ssl.PEM_HEADER) :])
        )
    except (LoginError, OSError, ValueError):
        return None
    if validity is None:
        return None
    digits = validity[1].decode()
    return datetime.strptime(digits, "%Y%m%d%H%M%S" if len(digits) > 12 else "%y%m%d%H%M%S").replace(
        tzinfo=UTC
    )


def short_reason(error: OSError | ValueError) -> str:
    """Returns the reason of a TLS or file error, without OpenSSL's source positions."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def _trust(context: ssl.SSLContext, tls: Tls) -> None:
    location = None if tls.ca_location == PROBE else tls.ca_location
    pem, setting = tls.ca_pem, "ssl.ca.pem"
    if tls.truststore is not None:
        pem, setting = authorities(tls.truststore), "ssl.truststore.location"
    if pem:
        try:
            context.load_verify_locations(cadata=pem)
        except (OSError, ValueError) as error:
            raise _unusable(setting, short_reason(error)) from None
    if location:
        _trust_location(context, Path(location))
    if not pem and not location:
        _trust_system(context)


def _trust_location(context: ssl.SSLContext, location: Path) -> None:
    setting = f"ssl.ca.location {location}"
    try:
        if not location.is_dir():
            context.load_verify_locations(cafile=str(location))
            return
        if not any(_HASHED.fullmatch(entry.name) for entry in location.iterdir()):
            why = "the folder holds no authority under the name of its hash, so OpenSSL would find none"
            raise LoginError(f"{setting} cannot be used: {why}", f"run: openssl rehash {location}")
        context.load_verify_locations(capath=str(location))
    except (OSError, ValueError) as error:
        raise _unusable(setting, short_reason(error)) from None


def _trust_system(context: ssl.SSLContext) -> None:
    context.load_default_certs()
    defaults = ssl.get_default_verify_paths()
    if not (defaults.cafile or defaults.capath):
        for place in _SYSTEM:
            if Path(place).is_file():
                context.load_verify_locations(cafile=place)
                return


def _identify(context: ssl.SSLContext, tls: Tls) -> None:
    """Loads the client's certificate.

    The standard library reads files, so PEM text is written to a private one.
    """
    if tls.keystore is not None:
        certificate_pem, key_pem = identity(tls.keystore)
        tls = replace(tls, keystore=None, certificate_pem=certificate_pem, key_pem=key_pem)
    if not (tls.certificate_location or tls.certificate_pem):
        return
    names = ", ".join(filter(None, (tls.certificate_location, tls.key_location))) or "the PEM text given"
    with tempfile.TemporaryDirectory(prefix="repl-") as private:  # mode 0700
        folder = Path(private)
        certificate = tls.certificate_location or _written(folder / "certificate.pem", tls.certificate_pem)
        key = tls.key_location or (_written(folder / "key.pem", tls.key_pem) if tls.key_pem else None)
        try:
            # Without a password, OpenSSL would prompt for one at the terminal.
            context.load_cert_chain(certificate, key, tls.key_password or "")
        except (OSError, ValueError) as error:
            setting = f"the client certificate or its key ({names})"
            raise _unusable(setting, short_reason(error)) from None


def _written(path: Path, pem: str | None) -> str:
    path.write_text(pem or "")
    return str(path)


def _unusable(setting: str, why: str) -> LoginError:
    return LoginError(f"{setting} cannot be used: {why}", "check the cluster's ssl.* settings")
