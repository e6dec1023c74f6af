"""This module runs the Kerberos key distribution center (KDC) of a lab: MIT's own, on a port of the loopback.

A lab has one realm for all of its clusters. The folder of the KDC holds its database, a keytab of each
principal, and the krb5.conf that clients and brokers use. The programs are those of Debian's krb5-kdc, which
`make kerberos` unpacks for a checkout.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from runtime.lab import processes
from runtime.lab.files import LabError, claim, last_lines, size_of, write
from runtime.lab.ports import free_ports, require_free_port
from runtime.lab.processes import LabProcess

REALM = "LAB.EXAMPLE"
FOLDER = "kdc"
TICKET_S = 3600
_HOST = "127.0.0.1"
_READY_S = 20.0
_UNPACKED = Path(sys.prefix) / "kerberos"  # where `make kerberos` unpacks Debian's packages
_PLUGINS = "krb5/plugins/kdb"
_PORT = "port"  # the file with the port; it is written last


class Kdc:
    """A Kdc is the KDC of the lab in a folder, created or not. Its methods raise LabError."""

    def __init__(self, home: Path) -> None:
        self.folder = home.absolute() / FOLDER

    @property
    def exists(self) -> bool:
        return (self.folder / _PORT).is_file()

    @property
    def client_settings(self) -> Path:
        """The krb5.conf that KRB5_CONFIG names, for this process and for Java."""
        return self.folder / "krb5.conf"

    @property
    def log(self) -> Path:
        return self.folder / "kdc.log"

    @property
    def address(self) -> str:
        return f"{_HOST}:{self._port}"

    @property
    def process(self) -> LabProcess | None:
        return processes.find([self._mark]).get(self._mark)

    @property
    def serves(self) -> bool:
        """Whether the KDC accepts connections."""
        with suppress(OSError), socket.create_connection((_HOST, self._port), timeout=1):
            return True
        return False

    def create(self, ticket_s: int = TICKET_S) -> None:
        """Creates the realm; without the file of its port, the KDC does not exist."""
        require_programs()
        claim(self.folder)
        port = next(free_ports(_HOST))
        database, libraries = self.folder / "principal", _unpacked_libraries()
        # Unpacked programs find the database's module only by this setting.
        modules = f"[dbmodules]\n db_module_dir = {libraries / _PLUGINS}\n" if libraries else ""
        write(
            self.client_settings,
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = {_HOST}:{port}\n }}\n",
        )
        write(
            self.folder / "kdc.conf",
            f"[kdcdefaults]\n kdc_listen = {_HOST}:{port}\n kdc_tcp_listen = {_HOST}:{port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {database}\n"
            f"  key_stash_file = {self.folder / 'stash'}\n  acl_file = {self.folder / 'acl'}\n"
            f"  max_life = {ticket_s}s\n  max_renewable_life = 0s\n }}\n{modules}",
        )
        # The process table must not show the password: it goes through a pipe, and is entered twice.
        password = secrets.token_urlsafe(18)
        self._run([_program("kdb5_util"), "create", "-s", "-r", REALM], f"{password}\n{password}\n")
        write(self.folder / _PORT, str(port))

    def keytab_file(self, principal: str) -> Path:
        return self.folder / f"{principal.replace('/', '_')}.keytab"

    def keytab(self, principal: str) -> Path:
        """Returns the keytab of a principal; a principal that does not exist is added."""
        path = self.keytab_file(principal)
        if not path.exists():
            self.administer("addprinc", "-randkey", principal)
            self.administer("ktadd", "-k", str(path), principal)
        return path

    def administer(self, *request: str) -> str:
        """Carries out a request of kadmin, such as delprinc, in the database itself."""
        return self._run([_program("kadmin.local"), "-r", REALM, *request])

    def start(self, prefix: Sequence[str] = ()) -> None:
        """Starts the KDC, and returns when it accepts connections."""
        program = _program("krb5kdc")
        require_free_port(_HOST, self._port, "stop it, or repl lab down --purge and up again")
        log_start = size_of(self.log)
        words = [*prefix, program, "-n", "-r", REALM, "-P", self._mark]
        processes.spawn(self._mark, words, self.log, self._environment)
        deadline = time.monotonic() + _READY_S
        while not self.serves:
            if self.process is None or time.monotonic() > deadline:
                self.stop()
                last = last_lines(self.log, log_start)
                raise LabError(f"the KDC does not serve. Its last words:\n{last}", where=str(self.log))
            time.sleep(0.02)

    def stop(self) -> None:
        processes.stop([self._mark], grace=5.0)

    @property
    def _mark(self) -> str:
        """The word of the KDC's command line that no other process has: its pid file."""
        return str(self.folder / "kdc.pid")

    @property
    def _port(self) -> int:
        file = self.folder / _PORT
        try:
            return int(file.read_text())
        except (OSError, ValueError) as problem:
            raise LabError(
                f"is not a KDC of this version of the lab: {problem}",
                "repl lab down --purge, and up again",
                where=str(file),
            ) from problem

    @property
    def _environment(self) -> dict[str, str]:
        settings = {
            "KRB5_CONFIG": str(self.client_settings),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
        }
        if libraries := _unpacked_libraries():
            settings["LD_LIBRARY_PATH"] = str(libraries)
        return {**os.environ, **settings}

    def _run(self, command: Sequence[str], text: str = "") -> str:
        done = subprocess.run(
            command, env=self._environment, input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            reason = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise LabError(f"{Path(command[0]).name} failed: {reason}", where=str(self.folder))
        return done.stdout


def require_programs() -> None:
    """Raises LabError if this machine has no KDC."""
    for name in ("krb5kdc", "kdb5_util", "kadmin.local"):
        _program(name)


def _program(name: str) -> str:
    program = shutil.which(name, path=os.pathsep.join(_places()))
    if program is None:
        raise LabError(
            f"--security kerberos needs a KDC, and this machine has no {name}",
            "install it (Debian and Ubuntu: apt-get install krb5-kdc krb5-admin-server; Red Hat: dnf install"
            " krb5-server), or run make kerberos in a checkout",
        )
    return program


def _places() -> list[str]:
    """Returns where programs of a KDC may lie; a user's PATH often lacks the folders of administrators."""
    return [str(_UNPACKED / "usr" / "sbin"), os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin"]


def _unpacked_libraries() -> Path | None:
    return next((plugins.parents[2] for plugins in _UNPACKED.glob(f"usr/lib/*/{_PLUGINS}")), None)
