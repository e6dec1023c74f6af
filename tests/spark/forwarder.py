"""A door that is closed at first: a bootstrap address that begins to answer when the test says so."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self


class Door:
    """`address` refuses connections until `open`; then each is carried on to `there`. The clients learn the
    brokers' own addresses through it and go on with those.
    """

    def __init__(self, there: str) -> None:
        host, _, port = there.rpartition(":")
        self._there = (host, int(port))
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def open(self) -> None:
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                came, _ = self._listening.accept()
            except OSError:
                return
            other = socket.create_connection(self._there)
            for one, two in ((came, other), (other, came)):
                threading.Thread(target=_carry, args=(one, two), daemon=True).start()


def _carry(one: socket.socket, two: socket.socket) -> None:
    try:
        while data := one.recv(65536):
            two.sendall(data)
    except OSError:
        return
    finally:
        two.close()
