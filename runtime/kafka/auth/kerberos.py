"""This module implements SASL GSSAPI (RFC 4752) with the Kerberos library of the machine.

It calls MIT's libgssapi_krb5 through ctypes: no Python package of Kerberos has a wheel for Linux, and these
calls are less than a compiler and headers on every machine where slots run (docs/internals/kafka-client.md).
They block while the library asks the KDC, so the exchange is advanced in a thread. The library renews what it
got with a keytab, and nothing is written to a disk.
"""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from runtime.contract.client.settings import Kerberos
from runtime.kafka.auth.login import Exchange, LoginError, quoted

LIBRARY = "libgssapi_krb5.so.2"

_INITIATE = 1
_INDEFINITE = 0xFFFFFFFF
_MUTUAL, _SEQUENCE, _INTEGRITY = 2, 8, 32
_CONTINUE = 1
_FAILED = 0xFFFF0000  # the bits of a major status that say that a call failed
_NO_LAYER = 1  # RFC 4752: neither integrity nor confidentiality after the login
_MAX_LINES = 5


class _Buffer(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))

    @classmethod
    def of(cls, data: bytes) -> _Buffer:
        return cls(len(data), ctypes.cast(c_char_p(data), c_void_p))

    @property
    def data(self) -> bytes:
        return ctypes.string_at(self.value, self.length) if self.value else b""


class _Oid(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("elements", c_char_p))

    @classmethod
    def of(cls, elements: bytes) -> _Oid:
        return cls(len(elements), elements)


class _KeyValue(ctypes.Structure):
    _fields_ = (("key", c_char_p), ("value", c_char_p))


class _KeyValues(ctypes.Structure):
    _fields_ = (("count", c_uint32), ("elements", POINTER(_KeyValue)))


_KERBEROS = _Oid.of(bytes.fromhex("2a864886f712010202"))  # the mechanism Kerberos 5
_PRINCIPAL = _Oid.of(bytes.fromhex("2a864886f71201020201"))  # a name of the form primary/instance@REALM
_SERVICE = _Oid.of(bytes.fromhex("2a864886f71201020104"))  # a name of the form service@host
# Logins of a process share the tickets of a principal: only one of them may get the first ones.
_FIRST: defaultdict[Kerberos, threading.Lock] = defaultdict(threading.Lock)
_FIRST_S = 10.0


def gssapi(login: Kerberos, host: str) -> Exchange:
    """Proves by a ticket who this client is, and demands the same of the broker."""
    context = _Context(login, host)
    try:
        first = _FIRST[login]
        if not first.acquire(timeout=_FIRST_S):
            raise LoginError(
                f"Kerberos: no KDC has answered another login of this process for {_FIRST_S:g} s",
                "check the KDCs of the realm in krb5.conf",
            )
        try:
            token = context.step(b"")
        finally:
            first.release()
        while not context.complete:
            token = context.step((yield token))
        layers = context.unwrap((yield token))
        if len(layers) != 4 or not layers[0] & _NO_LAYER:
            raise LoginError(
                "the broker demands that records are wrapped by Kerberos, which Kafka's clients do not do",
                "use security.protocol SASL_SSL to protect them",
            )
        yield context.wrap(bytes((_NO_LAYER, 0, 0, 0)))
    finally:
        context.release()


class _Context:
    """The security context of one login, and the names and credentials that it needs."""

    def __init__(self, login: Kerberos, host: str) -> None:
        self._library = _loaded()
        self._peer = f"{login.service}@{host}"
        self._login = login
        self._handle, self._credentials, self._name = c_void_p(), c_void_p(), c_void_p()
        self.complete = False

    def release(self) -> None:
        minor = c_uint32()
        if self._handle:
            self._library.gss_delete_sec_context(byref(minor), byref(self._handle), None)
        if self._credentials:
            self._library.gss_release_cred(byref(minor), byref(self._credentials))
        if self._name:
            self._library.gss_release_name(byref(minor), byref(self._name))

    def step(self, received: bytes) -> bytes:
        """Returns the next token to send; `complete` says whether the broker is proven."""
        if not self._name:
            self._acquire()
            self._name = self._imported(self._peer, _SERVICE)
        minor, sent, arrived = c_uint32(), _Buffer(), _Buffer.of(received)
        major = self._library.gss_init_sec_context(
            byref(minor),
            self._credentials,
            byref(self._handle),
            self._name,
            byref(_KERBEROS),
            _MUTUAL | _SEQUENCE | _INTEGRITY,
            0,
            None,
            byref(arrived),
            None,
            byref(sent),
            None,
            None,
        )
        token = self._taken(sent)
        self._check(
            major,
            minor,
            f"no ticket for {self._peer.replace('@', '/', 1)} was accepted",
            "check sasl.kerberos.service.name, the host names that the brokers advertise, and the clocks",
        )
        self.complete = not major & _CONTINUE
        return token

    def unwrap(self, received: bytes) -> bytes:
        minor, plain, arrived = c_uint32(), _Buffer(), _Buffer.of(received)
        major = self._library.gss_unwrap(byref(minor), self._handle, byref(arrived), byref(plain), None, None)
        data = self._taken(plain)
        self._check(major, minor, "the broker's last message was not signed with the session's key", "")
        return data

    def wrap(self, data: bytes) -> bytes:
        minor, wrapped, given = c_uint32(), _Buffer(), _Buffer.of(data)
        major = self._library.gss_wrap(byref(minor), self._handle, 0, 0, byref(given), None, byref(wrapped))
        token = self._taken(wrapped)
        self._check(major, minor, "the answer to the broker could not be signed", "")
        return token

    def _acquire(self) -> None:
        """Gets credentials: with the keytab, else those that kinit left on this machine."""
        login, minor = self._login, c_uint32()
        name = self._imported(login.principal, _PRINCIPAL) if login.principal else c_void_p()
        store = None
        if login.keytab:
            try:
                with Path(login.keytab).open("rb"):
                    pass
            except OSError as error:
                why = f"Kerberos: the keytab {login.keytab} cannot be read: {error.strerror}"
                raise LoginError(why, "check sasl.kerberos.keytab") from None
            tickets = sha256(f"{login.principal}\0{login.keytab}".encode()).hexdigest()[:32]
            elements = (_KeyValue * 2)(
                _KeyValue(b"client_keytab", login.keytab.encode()),
                _KeyValue(b"ccache", f"MEMORY:repl-{tickets}".encode()),
            )
            store = byref(_KeyValues(2, elements))
        try:
            major = self._library.gss_acquire_cred_from(
                byref(minor), name, _INDEFINITE, None, _INITIATE, store, byref(self._credentials), None, None
            )
        finally:
            if name:
                self._library.gss_release_name(byref(c_uint32()), byref(name))
        whose = f"of {quoted(login.principal)} " if login.principal else ""
        if login.keytab:
            where = f"the keytab {login.keytab} gave no credentials {whose}".rstrip()
            hint = (
                "check sasl.kerberos.keytab and sasl.kerberos.principal (klist -k shows what a keytab holds),"
                " and the realm in krb5.conf, or in the file that KRB5_CONFIG names"
            )
        else:
            where = f"this machine has no tickets {whose}".rstrip()
            hint = (
                "set sasl.kerberos.keytab and sasl.kerberos.principal, or run kinit where this process runs"
            )
        self._check(major, minor, where, hint)

    def _imported(self, text: str, kind: _Oid) -> c_void_p:
        minor, name, given = c_uint32(), c_void_p(), _Buffer.of(text.encode())
        major = self._library.gss_import_name(byref(minor), byref(given), byref(kind), byref(name))
        self._check(major, minor, f"{quoted(text)} is no name of Kerberos", "")
        return name

    def _taken(self, buffer: _Buffer) -> bytes:
        """Returns the bytes of a buffer of the library, and releases it."""
        data = buffer.data
        self._library.gss_release_buffer(byref(c_uint32()), byref(buffer))
        return data

    def _check(self, major: int, minor: c_uint32, why: str, hint: str) -> None:
        if major & _FAILED:
            text = self._text(minor.value, 2) if minor.value else self._text(major, 1)
            raise LoginError(f"Kerberos: {why}: {quoted(text)}", hint)

    def _text(self, status: int, kind: int) -> str:
        lines = []
        more = c_uint32()
        for _ in range(_MAX_LINES):
            line = _Buffer()
            self._library.gss_display_status(
                byref(c_uint32()), status, kind, byref(_KERBEROS), byref(more), byref(line)
            )
            lines.append(self._taken(line).decode(errors="replace"))
            if not more.value:
                break
        return "; ".join(filter(None, lines)) or "no reason was given"


@cache
def _loaded() -> Any:
    """Returns the library, with the types of the calls above."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        raise LoginError(
            f"sasl.mechanism GSSAPI needs the Kerberos library {LIBRARY}, which this machine does not have",
            "install it where repl and its jobs run: libgssapi-krb5-2 (Debian), krb5-libs (Red Hat)",
        ) from None
    handle, buffer, number, oid = POINTER(c_void_p), POINTER(_Buffer), POINTER(c_uint32), POINTER(_Oid)
    out = c_void_p  # a result that is not needed: None
    for name, parameters in {
        "gss_import_name": (number, buffer, oid, handle),
        "gss_release_name": (number, handle),
        "gss_acquire_cred_from": (
            *(number, c_void_p, c_uint32, c_void_p, c_int),
            *(POINTER(_KeyValues), handle, out, out),
        ),
        "gss_release_cred": (number, handle),
        "gss_init_sec_context": (
            *(number, c_void_p, handle, c_void_p, oid, c_uint32, c_uint32),
            *(c_void_p, buffer, out, buffer, out, out),
        ),
        "gss_delete_sec_context": (number, handle, out),
        "gss_wrap": (number, c_void_p, c_int, c_uint32, buffer, out, buffer),
        "gss_unwrap": (number, c_void_p, buffer, buffer, out, out),
        "gss_display_status": (number, c_uint32, c_int, oid, number, buffer),
        "gss_release_buffer": (number, buffer),
    }.items():
        function = getattr(library, name)
        function.argtypes, function.restype = parameters, c_uint32
    return library
