"""A KDC that accepts and never answers: logins fail, and nothing else of the process waits for them."""

import asyncio
import ctypes
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.contract.client.settings import Kerberos
from runtime.kafka.auth.kerberos import LIBRARY, gssapi
from runtime.kafka.auth.login import LoginError, advance
from runtime.kafka.timing import in_own_thread

REALM = "SILENT.EXAMPLE"


def has_kerberos() -> bool:
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_kerberos(), reason=f"needs {LIBRARY}")


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kerberos]:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        settings = tmp_path / "krb5.conf"
        settings.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{silent.getsockname()[1]}\n }}\n"
        )
        monkeypatch.setenv("KRB5_CONFIG", str(settings))
        keytab = tmp_path / "me.keytab"
        keytab.write_bytes(keytab_of("me"))
        yield Kerberos("kafka", "me", str(keytab))


def keytab_of(name: str) -> bytes:
    """A keytab with one key for AES-256, in the format of MIT's documentation."""
    realm, part, key = REALM.encode(), name.encode(), bytes(32)
    entry = struct.pack(f">hh{len(realm)}sh{len(part)}s", 1, len(realm), realm, len(part), part)
    entry += struct.pack(">iIBhh32s", 1, 0, 1, 18, len(key), key)
    return b"\x05\x02" + struct.pack(">i", len(entry)) + entry


@pytest.mark.slow
async def test_a_silent_kdc_holds_up_nothing_else(login: Kerberos) -> None:
    began = time.monotonic()
    logins = [
        asyncio.ensure_future(in_own_thread(lambda: advance(gssapi(login, "broker"), None)))
        for _ in range(12)  # more than the loop has threads of its own
    ]
    done, waiting = await asyncio.wait(logins, timeout=0.5)
    assert not done
    await asyncio.get_running_loop().getaddrinfo("localhost", 1)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert time.monotonic() - began < 5


def test_a_keytab_that_cannot_be_read_is_named(login: Kerberos, tmp_path: Path) -> None:
    with pytest.raises(LoginError, match=r"the keytab .*no-such cannot be read: No such file"):
        advance(gssapi(Kerberos("kafka", "me", str(tmp_path / "no-such")), "broker"), None)
