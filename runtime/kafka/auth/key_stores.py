"""This module reads key stores in the format PKCS #12, which Java's tools make, as PEM text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runtime.contract.client.settings import Store, java_store_problem
from runtime.contract.extras import Extra, missing_extra
from runtime.kafka.auth.login import LoginError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

MAX_BYTES = 1 << 20
_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS and JCEKS


def identity(store: Store) -> tuple[str, str]:
    """Returns the certificates, the client's own first, and the key of `ssl.keystore.location`."""
    setting = f"ssl.keystore.location {store.location}"
    held = _read(store, "ssl.keystore")
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if held.key is None or held.cert is None:
        raise LoginError(f"{setting} holds no key with its certificate", "name the store of the client's key")
    certificates = (held.cert, *held.additional_certs)
    chain = b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in certificates)
    key = held.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return chain.decode(), key.decode()


def authorities(store: Store) -> str:
    """Returns the certificates of `ssl.truststore.location`."""
    held = _read(store, "ssl.truststore")
    from cryptography.hazmat.primitives.serialization import Encoding

    certificates = (*([held.cert] if held.cert is not None else []), *held.additional_certs)
    if not certificates:
        raise LoginError(
            f"ssl.truststore.location {store.location} holds no certificate",
            "name the store of the authorities",
        )
    return b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in certificates).decode()


def _read(store: Store, name: str) -> PKCS12KeyAndCertificates:
    setting = f"{name}.location {store.location}"
    try:
        with Path(store.location).open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise LoginError(f"{setting} cannot be read: {error.strerror}", "check the path") from None
    if len(content) > MAX_BYTES:
        raise LoginError(f"{setting} is larger than {MAX_BYTES >> 20} MiB", "name the store of one client")
    if content.startswith(_JKS):
        why, hint = java_store_problem(store.location)
        raise LoginError(f"{setting} {why}", hint)
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise LoginError(*missing_extra(Extra.KEYSTORES, f"{name}.location")) from None
    try:
        return pkcs12.load_pkcs12(content, store.password.encode() if store.password else None)
    except UnsupportedAlgorithm:
        why = f"{setting} has a key or a cipher of a kind that is not supported"
        raise LoginError(why, "make the store again with a key of RSA, EC or Ed25519") from None
    except ValueError:
        raise LoginError(
            f"{setting} is no store of PKCS #12 that {name}.password opens",
            f"check both settings, {name}.type too",
        ) from None
