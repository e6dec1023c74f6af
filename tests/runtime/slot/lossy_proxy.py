"""A proxy before one broker that loses the answer to the end of a transaction."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_END_TXN = 26
_SIZE = struct.Struct(">i")
_API_KEY = struct.Struct(">h")


class LosesEnds:
    """`address` leads to the broker at `there`, which must be set before the first client comes."""

    def __init__(self, listening: socket.socket) -> None:
        self.there = ""
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self._listening = listening
        self._first: Callable[[], None] | None = None
        self._lost = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answer(self, first: Callable[[], None]) -> None:
        """Once, from now on; the connection goes with it. `first` is done before the broker is asked."""
        self._lost.clear()
        self._first = first

    def await_lost(self, within_s: float = 60) -> None:
        assert self._lost.wait(within_s), "no transaction ended"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        """Requests one by one; answers as they come, so that many may be on their way."""
        host, _, port = self.there.rpartition(":")
        with client, suppress(OSError), socket.create_connection((host, int(port))) as broker:
            threading.Thread(target=_answers, args=(broker, client), daemon=True).start()
            while (frame := _frame(client)) is not None:
                if self._first is not None and _API_KEY.unpack_from(frame, _SIZE.size)[0] == _END_TXN:
                    self._end(frame, self._first)
                    client.shutdown(socket.SHUT_RDWR)
                    return
                broker.sendall(frame)

    def _end(self, frame: bytes, first: Callable[[], None]) -> None:
        self._first = None
        first()
        host, _, port = self.there.rpartition(":")
        with socket.create_connection((host, int(port))) as alone:
            alone.sendall(frame)
            assert _frame(alone) is not None, "the broker did not answer the end"
        self._lost.set()


def _answers(broker: socket.socket, client: socket.socket) -> None:
    with suppress(OSError):
        while data := broker.recv(1 << 16):
            client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)


def _frame(one: socket.socket) -> bytes | None:
    size = _exactly(one, _SIZE.size)
    body = _exactly(one, _SIZE.unpack(size)[0]) if size else None
    return size + body if size and body else None


def _exactly(one: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        more = one.recv(size - len(data))
        if not more:
            return None
        data += more
    return bytes(data)


@contextmanager
def losing_ends() -> Iterator[LosesEnds]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield LosesEnds(listening)
