"""This module reuses memory for responses, because page faults of fresh memory dominate a fast read's CPU."""

from __future__ import annotations

SMALLEST = 64 * 1024
PIECE = 1 << 20
KEPT = 128 * 1024 * 1024  # larger than the responses that a slot holds, so that they reuse memory


class BufferPool:
    """A BufferPool hands out memory for one response, and reuses it once the last view of it is released.

    A bytearray cannot be resized while a view of it exists. Therefore callers release nothing explicitly, and
    a forgotten view costs memory, never correctness. At most `kept_bytes` of unused memory are kept.
    """

    def __init__(self, kept_bytes: int = KEPT) -> None:
        self._kept_bytes = kept_bytes
        self._buffers: list[bytearray] = []

    def first(self, size: int) -> memoryview:
        """Returns memory for a response of this size: all of it, because the broker is trusted."""
        return self.take(size)

    def grown(self, memory: memoryview, size: int) -> memoryview:
        """Returns larger memory with the same beginning, for a response of this total size."""
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
        if _unused(buffer):  # the spare byte is added once, before the buffer holds data
            self._keep(buffer)
        return memoryview(buffer)[:size]

    def _keep(self, buffer: bytearray) -> None:
        self._buffers.append(buffer)
        total = sum(map(len, self._buffers))
        while total > self._kept_bytes:
            total -= len(self._buffers.pop(0))


class GrowingBuffers(BufferPool):
    """This pool allocates memory as bytes arrive, so that an announced size alone costs nothing."""

    def first(self, size: int) -> memoryview:
        return self.take(min(size, PIECE))


def _unused(buffer: bytearray) -> bool:
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
