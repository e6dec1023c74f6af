"""Requests of a fake that wait until a test lets them through."""

import asyncio


async def settled() -> None:
    """Lets every task that is ready run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


class Permits(asyncio.Semaphore):
    """A fake acquires one before it answers a request; the test grants them."""

    def __init__(self) -> None:
        super().__init__(0)

    def allow(self, requests: int) -> None:
        for _ in range(requests):
            self.release()
