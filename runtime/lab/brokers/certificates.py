"""This module makes the certificates of a cluster with TLS: of an authority, of the broker, and of each user.

Users have certificates where TLS is mutual. The extra `drill` brings the package cryptography, so only a
cluster with TLS imports this module.
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from runtime.lab.cluster import LabKafkaCluster
from runtime.lab.files import write

_VALID = timedelta(days=3650)


def make_certificates(cluster: LabKafkaCluster, users: Sequence[str]) -> None:
    """Writes all keys and certificates to the cluster's secrets as PEM, which all clients read."""
    key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate(f"{cluster.name} lab authority", key, key, None, [])
    write(cluster.secret_file("ca.pem"), _pem(authority), secret=True)
    _issue(cluster, "broker", key, authority, ["localhost", cluster.spec.host])
    for user in users:
        _issue(cluster, user, key, authority, [])


def _issue(
    cluster: LabKafkaCluster,
    name: str,
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    hosts: Sequence[str],
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _pem(_certificate(name, key, authority_key, authority, hosts))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    certificate_file, key_file = cluster.certificate_files(name)
    write(certificate_file, certificate, secret=True)
    write(key_file, private, secret=True)
    # Java reads key and certificate from one file.
    write(cluster.secret_file(f"{name}.pem"), private + certificate, secret=True)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate | None,
    hosts: Sequence[str],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # the clocks of containers may differ
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
    )
    if authority:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if hosts:
        names = [_host(host) for host in dict.fromkeys(hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
