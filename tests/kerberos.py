"""A KDC of its own for tests: a realm on loopback, its principals, and their keytabs."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.labs import WITH_PARENT

REALM = "LAB.EXAMPLE"
# Debian's packages, unpacked beside the environment by the Makefile; or those of the machine.
UNPACKED = Path(sys.prefix) / "kerberos"
_LIBRARIES = UNPACKED / "usr" / "lib" / "x86_64-linux-gnu"


@dataclass(frozen=True)
class Kdc:
    """A running KDC, whose folder holds its database, settings and keytabs."""

    folder: Path
    port: int
    ticket_s: int

    @property
    def client_settings(self) -> Path:
        """What KRB5_CONFIG names, for this process and for Java."""
        return self.folder / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        settings = {
            "KRB5_CONFIG": str(self.client_settings),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
        }
        return {**os.environ, **settings, "LD_LIBRARY_PATH": str(_LIBRARIES)}

    def keytab(self, principal: str) -> Path:
        """Returns a new keytab with the keys of a new principal."""
        path = self.folder / f"{principal.replace('/', '_')}.keytab"
        self.administer(f"addprinc -randkey -maxlife {self.ticket_s}seconds {principal}")
        self.administer(f"ktadd -k {path} {principal}")
        return path

    def administer(self, request: str) -> str:
        return _run([_program("kadmin.local"), "-r", REALM, "-q", request], self.environment)


@contextmanager
def running_kdc(folder: Path, ticket_s: int = 3600) -> Iterator[Kdc]:
    folder.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kdc = Kdc(folder, port, ticket_s)
    kdc.client_settings.write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
        " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        f"[dbmodules]\n db_module_dir = {_LIBRARIES / 'krb5/plugins/kdb'}\n"
    )
    (folder / "kdc.conf").write_text(
        f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n"
        f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
        f"  acl_file = {folder}/acl\n  max_life = {ticket_s}s\n  max_renewable_life = 0s\n }}\n"
    )
    _run([_program("kdb5_util"), "create", "-s", "-P", "a lab's secret", "-r", REALM], kdc.environment)
    with (folder / "kdc.log").open("w") as log:
        process = subprocess.Popen(
            [*WITH_PARENT, _program("krb5kdc"), "-n", "-r", REALM],
            env=kdc.environment,
            stdout=log,
            stderr=log,
        )
    try:
        _wait(process, port, folder / "kdc.log")
        yield kdc
    finally:
        process.kill()
        process.wait()


def _program(name: str) -> str:
    places = [str(UNPACKED / "usr" / "sbin"), os.environ.get("PATH", ""), "/usr/sbin"]
    found = shutil.which(name, path=os.pathsep.join(places))
    assert found is not None, f"{name} is missing: run make kerberos"
    return found


def _run(command: Sequence[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        else:
            return
