"""Memory for responses, used again: large fresh memory costs page faults, most of a fast read's CPU."""

from __future__ import annotations

SMALLEST = 64 * 1024
PIECE = 1 << 20
KEPT = 128 * 1024 * 1024  # more than a slot holds of responses, else each would be fresh memory


class BufferPool:
    """Hands out memory for one response; takes it back by itself when the last view of it is gone.

    A bytearray refuses to change its size while anything views it, so no one has to say that they are done,
    and a forgotten view costs memory, never correctness. At most `kept_bytes` stay here while unused.
    """

    def __init__(self, kept_bytes: int = KEPT) -> None:
        self._kept_bytes = kept_bytes
        self._buffers: list[bytearray] = []

    def first(self, size: int) -> memoryview:
        """Memory that an answer of this size begins in: all of it, since the broker is believed."""
        return self.take(size)

    def grown(self, memory: memoryview, size: int) -> memoryview:
        """Larger memory with the same beginning, for an answer of this size in all."""
        larger = self.take(min(size, 2 * len(memory)))
        larger[: len(memory)] = memory
        return larger

    def take(self, size: int) -> memoryview:
        if size < SMALLEST:
            return memoryview(bytearray(size))
        for buffer in self._buffers:
            if size <= len(buffer) <= 4 * size and _unused(buffer):
                return memoryview(buffer)[:size]
        buffer = bytearray(size + size // 4)
        if _unused(buffer):  # grows its spare byte once, before anything lies in it
            self._keep(buffer)
        return memoryview(buffer)[:size]

    def _keep(self, buffer: bytearray) -> None:
        self._buffers.append(buffer)
        total = sum(map(len, self._buffers))
        while total > self._kept_bytes:
            total -= len(self._buffers.pop(0))


class GrowingBuffers(BufferPool):
    """Takes memory for an answer as its bytes arrive, so that an announced size alone costs nothing."""

    def first(self, size: int) -> memoryview:
        return self.take(min(size, PIECE))


def _unused(buffer: bytearray) -> bool:
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
