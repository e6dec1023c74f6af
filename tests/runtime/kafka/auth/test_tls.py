"""TLS contexts: who is trusted, by a file, a folder or text, and what a wrong setting says."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from socket import socketpair
from threading import Thread

import pytest

from runtime.contract.client.settings import Store, Tls
from runtime.kafka.auth.login import LoginError
from runtime.kafka.auth.tls import certificate_end, tls_context
from tests.certificates import PASSWORD, Renewals, issued

HOST = "broker.example.org"


class Authority:
    """A certificate authority, and one broker certificate that it signed."""

    def __init__(self, name: str, folder: Path, host: str = HOST) -> None:
        authority = issued(name)
        broker = issued("broker", authority, host=host)
        self.pem = authority.certificate_pem.decode()
        self.ca = folder / f"{name}.pem"
        self.ca.write_text(self.pem)
        self.broker = folder / f"{name}-broker.pem"
        self.broker.write_bytes(broker.key_pem + broker.certificate_pem)

    def hashed_folder(self, folder: Path) -> Path:
        """The folder as `openssl rehash` leaves it."""
        command = ["openssl", "x509", "-in", str(self.ca), "-noout", "-subject_hash"]
        name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        folder.mkdir()
        (folder / f"{name}.0").write_text(self.pem)
        return folder


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority("ours", tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority("other", tmp_path_factory.mktemp("other"))


def accepts(tls: Tls, broker: Authority, host: str = HOST, newest: ssl.TLSVersion | None = None) -> bool:
    """Whether a client with these settings believes that broker."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if newest is not None:
        server.set_ciphers("DEFAULT:@SECLEVEL=0")
        server.minimum_version = server.maximum_version = newest
    server.load_cert_chain(broker.broker)
    near, far = socketpair()
    near.settimeout(20)
    far.settimeout(20)

    def serve() -> None:
        try:
            with server.wrap_socket(far, server_side=True) as end:
                end.recv(1)
        except OSError:
            far.close()

    thread = Thread(target=serve)
    thread.start()
    try:
        with tls_context(tls).wrap_socket(near, server_hostname=host):
            return True
    except ssl.SSLError:
        return False
    finally:
        near.close()
        thread.join()


def test_what_is_named_is_trusted_alone(
    ours: Authority, other: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ours.hashed_folder(tmp_path / "cas")
    monkeypatch.setenv("SSL_CERT_FILE", str(other.ca))  # whom the system trusts
    monkeypatch.setenv("SSL_CERT_DIR", "/nonexistent")
    assert accepts(Tls(), other)
    assert accepts(Tls(ca_location="probe"), other)
    assert not accepts(Tls(), ours)
    for tls in (Tls(ca_location=str(ours.ca)), Tls(ca_location=str(folder)), Tls(ca_pem=ours.pem)):
        assert accepts(tls, ours), tls
        assert not accepts(tls, other), tls
    assert accepts(Tls(ca_pem=ours.pem, ca_location=str(other.ca)), ours)


def test_the_host_name_counts_unless_it_is_switched_off(ours: Authority, other: Authority) -> None:
    trusting = Tls(ca_pem=ours.pem)

    assert not accepts(trusting, ours, "other.example.org")
    assert accepts(replace(trusting, check_hostname=False), ours, "other.example.org")
    assert not accepts(replace(trusting, check_hostname=False), other)
    assert accepts(replace(trusting, verify=False), other, "other.example.org")


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_older_tls_is_refused(ours: Authority, version: str) -> None:
    client = Tls(ca_pem=ours.pem, ciphers="DEFAULT:@SECLEVEL=0")  # OpenSSL itself would take it
    assert not accepts(client, ours, newest=ssl.TLSVersion[version])
    assert accepts(client, ours, newest=ssl.TLSVersion.TLSv1_2)


def test_ciphers_may_be_listed_with_commas() -> None:
    context = tls_context(Tls(ciphers="ECDHE-RSA-AES256-GCM-SHA384,ECDHE-RSA-AES128-GCM-SHA256"))

    assert {"ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"} <= {
        one["name"] for one in context.get_ciphers()
    }


@pytest.mark.parametrize(
    ("tls", "why", "hint"),
    [
        (Tls(ca_location="/no/ca.pem"), "ssl.ca.location /no/ca.pem cannot be used: No such file", "ssl."),
        (Tls(ca_pem="secret text"), "ssl.ca.pem cannot be used", "ssl."),
        (Tls(ciphers="NO-SUCH"), "ssl.cipher.suites cannot be used", "ssl."),
        (Tls(certificate_location="/no/such.pem"), "(/no/such.pem) cannot be used: No such file", "ssl."),
        (Tls(certificate_pem="secret text"), "(the PEM text given) cannot be used", "ssl."),
    ],
)
def test_a_setting_that_can_not_be_used_is_named(tls: Tls, why: str, hint: str) -> None:
    with pytest.raises(LoginError) as failure:
        tls_context(tls)
    assert why in failure.value.why
    assert hint in failure.value.hint
    assert "secret text" not in str(failure.value)


def test_a_folder_without_hashed_names_would_trust_nothing(ours: Authority, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(ours.pem)

    with pytest.raises(LoginError, match="under the name of its hash") as failure:
        tls_context(Tls(ca_location=str(tmp_path)))
    assert failure.value.hint == f"run: openssl rehash {tmp_path}"


@pytest.mark.parametrize("end", [datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC), datetime(2071, 1, 2, tzinfo=UTC)])
def test_the_end_of_a_certificate_is_read_in_each_form(end: datetime, tmp_path: Path) -> None:
    renewals = Renewals(tmp_path / "clients", "repl", 60)
    renewals.write((end - datetime.now(UTC)).total_seconds() + 0.5, "-far")
    folder = renewals.folder
    for tls in (
        Tls(certificate_location=str(folder / "client-far.pem")),
        Tls(certificate_pem=(folder / "client-far.pem").read_text()),
        Tls(certificate_location=str(folder / "store-far.pem")),  # the key stands before it
        Tls(keystore=Store(str(folder / "keystore-far.p12"), PASSWORD)),
    ):
        assert certificate_end(tls) == end


@pytest.mark.parametrize("content", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA"])
def test_a_certificate_that_cannot_be_read_has_no_end(content: str, tmp_path: Path) -> None:
    (tmp_path / "client.pem").write_text(content)
    assert certificate_end(Tls(certificate_location=str(tmp_path / "client.pem"))) is None
    assert certificate_end(Tls()) is None
