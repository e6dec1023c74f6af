"""Certificates of clients that end within a minute, in key stores that are renewed on disk."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

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


class Renewals:
    """An authority of short certificates for `name`; `renew` writes a new one, in each form."""

    def __init__(self, folder: Path, name: str, lifetime_s: float) -> None:
        self.folder, self.name, self.lifetime_s = folder, name, lifetime_s
        folder.mkdir(parents=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._authority = self._signed("authority", self._key, 3600)
        self.authority_file = folder / "clients.pem"
        self.authority_file.write_bytes(self._authority.public_bytes(Encoding.PEM))
        (folder / "password").write_text(PASSWORD)
        self.renew()

    def renew(self) -> None:
        """Writes a new key and its certificate: as files in PEM, and as stores in PKCS #12 and PEM."""
        self.write(self.lifetime_s)

    def write(self, lifetime_s: float, suffix: str = "") -> None:
        """Writes a new key and a certificate that ends after so many seconds, or has ended."""
        encryption = BestAvailableEncryption(PASSWORD.encode())
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(self.name, key, lifetime_s)
        store = pkcs12.serialize_key_and_certificates(b"client", key, certificate, None, encryption)
        self._write(f"keystore{suffix}.p12", store)
        text = certificate.public_bytes(Encoding.PEM)
        plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self._write(f"client{suffix}.key", plain)
        self._write(
            f"encrypted{suffix}.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        )
        self._write(f"client{suffix}.pem", text)
        self._write(f"store{suffix}.pem", plain + text)

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

    def _signed(self, name: str, key: ec.EllipticCurvePrivateKey, lifetime_s: float) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1000))
            .not_valid_after(now + timedelta(seconds=lifetime_s))
            .add_extension(x509.BasicConstraints(ca=name == "authority", path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )


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
