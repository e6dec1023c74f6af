"""Key stores as Java's tools and OpenSSL's make them, and certificates that are renewed on disk."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    pkcs12,
)

from planner.kafka.librdkafka import client_settings
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.contract.client.settings import Store, Tls
from runtime.kafka.auth.key_stores import MAX_BYTES, authorities, identity
from runtime.kafka.auth.login import LoginError
from runtime.kafka.auth.tls import TlsContexts, tls_context
from tests.certificates import PASSWORD, Identity, issued


def keystore(path: Path, name: str) -> Path:
    encryption = BestAvailableEncryption(PASSWORD.encode())
    store = pkcs12.serialize_key_and_certificates(name.encode(), *issued(name), None, encryption)
    path.write_bytes(store)
    return path


def names_in(pem: str) -> list[str]:
    return [
        certificate.subject.rfc4514_string() for certificate in x509.load_pem_x509_certificates(pem.encode())
    ]


def test_a_keystore_gives_the_clients_certificate_and_key(tmp_path: Path) -> None:
    store = Store(str(keystore(tmp_path / "me.p12", "me")), PASSWORD)
    certificates, key = identity(store)
    assert names_in(certificates) == ["CN=me"]
    assert key.startswith("-----BEGIN PRIVATE KEY-----")
    tls_context(Tls(keystore=store, truststore=store))
    assert PASSWORD not in repr(store)


def test_a_truststore_gives_every_authority(tmp_path: Path) -> None:
    held = [pkcs12.PKCS12Certificate(issued(name).certificate, name.encode()) for name in ("old", "new")]
    path = tmp_path / "authorities.p12"
    path.write_bytes(pkcs12.serialize_java_truststore(held, BestAvailableEncryption(PASSWORD.encode())))
    store = Store(str(path), PASSWORD)
    assert names_in(authorities(store)) == ["CN=old", "CN=new"]
    assert tls_context(Tls(truststore=store)).cert_store_stats()["x509"] == 2
    with pytest.raises(LoginError, match="holds no key with its certificate"):
        identity(store)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("keytool") is None, reason="needs keytool of a JDK")
def test_what_keytool_writes_is_read_and_jks_names_the_command_that_converts_it(tmp_path: Path) -> None:
    def keytool(*words: object) -> None:
        subprocess.run(["keytool", "-noprompt", *map(str, words)], check=True, capture_output=True)

    new, old = tmp_path / "new store.jks", tmp_path / "old store.jks"
    passwords = ("-storepass", PASSWORD, "-keypass", PASSWORD)
    for path, kind in ((new, "PKCS12"), (old, "JKS")):
        keytool(
            *("-genkeypair", "-alias", "me", "-keyalg", "EC", "-dname", "CN=me"),
            *("-keystore", path, "-storetype", kind, *passwords),
        )
    assert names_in(identity(Store(str(new), PASSWORD))[0]) == ["CN=me"]
    with pytest.raises(LoginError, match="only Java reads") as refused:
        identity(Store(str(old), PASSWORD))
    command = refused.value.hint.removeprefix("convert it: ").removesuffix(", and name that file")
    assert command.startswith("keytool -importkeystore -srckeystore '")
    stores = ("-srcstorepass", PASSWORD, "-deststorepass", PASSWORD, "-noprompt")
    subprocess.run(
        ["sh", "-c", f'{command} "$@"', "sh", *stores], check=True, capture_output=True, cwd=tmp_path
    )
    assert names_in(identity(Store(f"{old}.p12", PASSWORD))[0]) == ["CN=me"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file"),
        (b"", "no store of PKCS #12 that ssl.keystore.password opens"),
        (b"-----BEGIN CERTIFICATE-----", "no store of PKCS #12"),
        (b"x" * (MAX_BYTES + 1), "larger than 1 MiB"),
        (b"\xfe\xed\xfe\xed\0\0", "only Java reads"),
    ],
)
def test_what_is_no_keystore_is_refused(content: bytes | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / "me.p12"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoginError, match=why):
        identity(Store(str(path), PASSWORD))


def test_a_key_of_a_kind_that_is_not_supported_is_said(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    store = tmp_path / "me.p12"
    openssl = (
        "openssl",
        "req",
        "-x509",
        "-nodes",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:secp112r1",
    )
    made = subprocess.run(
        [*openssl, "-subj", "/CN=me", "-keyout", key, "-out", certificate], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("this OpenSSL makes no such key")
    export = ("openssl", "pkcs12", "-export", "-passout", f"pass:{PASSWORD}")
    subprocess.run([*export, "-inkey", key, "-in", certificate, "-out", store], check=True)
    with pytest.raises(LoginError, match="of a kind that is not supported"):
        identity(Store(str(store), PASSWORD))


def test_clients_of_librdkafka_get_the_same_certificates(tmp_path: Path) -> None:
    pem = {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"}
    pem |= {"ssl.keystore.location": "/me.pem", "ssl.keystore.type": "PEM"}
    settings = client_settings(ClusterEndpoint("dc1", "b:1", {"security.protocol": "SSL", **pem}))
    assert settings["ssl.ca.location"] == "/ca.pem"
    assert settings["ssl.certificate.location"] == settings["ssl.key.location"] == "/me.pem"
    store = {
        "ssl.keystore.location": str(keystore(tmp_path / "me.p12", "me")),
        "ssl.keystore.password": PASSWORD,
    }
    settings = client_settings(ClusterEndpoint("dc1", "b:1", {"security.protocol": "SSL", **store}))
    assert names_in(settings["ssl.certificate.pem"]) == ["CN=me"]
    assert not [name for name in settings if "store" in name]


@pytest.mark.parametrize("password", ["simsalabim", None])
def test_a_wrong_password_is_named_and_not_shown(password: str | None, tmp_path: Path) -> None:
    store = Store(str(keystore(tmp_path / "me.p12", "me")), password)
    with pytest.raises(LoginError, match=r"ssl\.keystore\.password") as refused:
        tls_context(Tls(keystore=store))
    assert "simsalabim" not in f"{refused.value.why} {refused.value.hint}"


def test_renewed_files_are_used_and_half_renewed_ones_wait(tmp_path: Path) -> None:
    certificate, key = tmp_path / "me.crt", tmp_path / "me.key"

    def write(made: Identity, *parts: Path) -> None:
        for path in parts:
            renewed = path.with_suffix(".renewed")
            renewed.write_bytes(made.certificate_pem if path == certificate else made.key_pem)
            renewed.replace(path)

    write(issued("me"), certificate, key)
    tls = Tls(certificate_location=str(certificate), key_location=str(key))
    contexts = TlsContexts(tls)
    first = contexts.current()
    assert contexts.current() is first
    renewed = issued("me")
    write(renewed, certificate)
    assert contexts.current() is first
    assert "the renewed files are not used" in contexts.problem
    assert "key values mismatch" in contexts.problem
    write(renewed, key)
    second = contexts.current()
    assert second is not first
    assert contexts.problem == ""
    key.unlink()
    assert contexts.current() is second
    assert isinstance(second, ssl.SSLContext)
