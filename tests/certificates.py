"""Certificates of clients that end within a minute, in key stores that are renewed on disk."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

PASSWORD = "open sesame"
RENEWED_EVERY_S = 5


class Identity(NamedTuple):
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def issued(name: str, by: Identity | None = None, *, lifetime_s: float = 86_400, host: str = "") -> Identity:
    """Returns a new key with a certificate for a broker at `host` or a client; without `by`, an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1000))
        .not_valid_after(now + timedelta(seconds=lifetime_s))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if host:
        certificate = certificate.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False
        )
    return Identity(key, certificate.sign(by.key if by is not None else key, hashes.SHA256()))


class Renewals:
    """An authority of short certificates for `name`; `renew` writes a new one, in each form."""

    def __init__(self, folder: Path, name: str, lifetime_s: float) -> None:
        self.folder, self.name, self.lifetime_s = folder, name, lifetime_s
        folder.mkdir(parents=True)
        self._authority = issued("authority", lifetime_s=3600)
        self.authority_file = folder / "clients.pem"
        self.authority_file.write_bytes(self._authority.certificate_pem)
        (folder / "password").write_text(PASSWORD)
        self.renew()

    def renew(self) -> None:
        """Writes a new key and its certificate: as files in PEM, and as stores in PKCS #12 and PEM."""
        self.write(self.lifetime_s)

    def write(self, lifetime_s: float, suffix: str = "") -> None:
        """Writes a new key and a certificate that ends after so many seconds, or has ended."""
        encryption = BestAvailableEncryption(PASSWORD.encode())
        own = issued(self.name, self._authority, lifetime_s=lifetime_s)
        store = pkcs12.serialize_key_and_certificates(b"client", *own, None, encryption)
        self._write(f"keystore{suffix}.p12", store)
        self._write(f"client{suffix}.key", own.key_pem)
        encrypted = own.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        self._write(f"encrypted{suffix}.key", encrypted)
        self._write(f"client{suffix}.pem", own.certificate_pem)
        self._write(f"store{suffix}.pem", own.key_pem + own.certificate_pem)

    def settings(self, form: str, name: str, trusted: Path, suffix: str = "") -> dict[str, object]:
        """Returns what stands below `client:`. `trusted` has the authority of the brokers."""
        password = {"file": str(self.folder / "password")}
        if form != "keystore":
            certificate = {"ssl.certificate.location": str(self.folder / f"client{suffix}.pem")}
            own: dict[str, dict[str, object]] = {
                "pem": {**certificate, "ssl.key.location": str(self.folder / f"client{suffix}.key")},
                "encrypted-pem": {
                    **certificate,
                    "ssl.key.location": str(self.folder / f"encrypted{suffix}.key"),
                    "ssl.key.password": password,
                },
                "pem-store": {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": str(self.folder / f"store{suffix}.pem"),
                },
            }
            return {"security.protocol": "SSL", "ssl.ca.location": str(trusted), **own[form]}
        store = self.folder / f"{name}.p12"
        authorities = x509.load_pem_x509_certificates(trusted.read_bytes())
        held = [pkcs12.PKCS12Certificate(authority, b"brokers") for authority in authorities]
        store.write_bytes(pkcs12.serialize_java_truststore(held, BestAvailableEncryption(PASSWORD.encode())))
        return {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(store),
            "ssl.truststore.password": password,
            "ssl.keystore.location": str(self.folder / f"keystore{suffix}.p12"),
            "ssl.keystore.password": password,
        }

    def _write(self, name: str, content: bytes) -> None:
        temporary = self.folder / f".{name}"
        temporary.write_bytes(content)
        temporary.replace(self.folder / name)


@contextmanager
def renewed(renewals: Renewals) -> Iterator[None]:
    """Renews the certificates every few seconds, as an agent on the machine does."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(RENEWED_EVERY_S):
            renewals.renew()

    renewals.renew()
    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
