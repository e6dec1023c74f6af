"""Memory is used again, and never while somebody looks at it (R8)."""

from __future__ import annotations

import gc

from hypothesis import given
from hypothesis import strategies as st

from runtime.kafka.connection import PIECE, SMALLEST, BufferPool, GrowingBuffers

SIZE = SMALLEST * 4


def test_memory_is_used_again_when_its_last_view_is_gone() -> None:
    pool = BufferPool()
    first = pool.take(SIZE)
    records = first[100:200]
    memory = id(first.obj)

    del first
    assert id(pool.take(SIZE).obj) != memory  # a record batch of it is still on its way

    del records
    gc.collect()
    assert id(pool.take(SIZE).obj) == memory


def test_a_small_answer_does_not_hold_a_large_memory() -> None:
    pool = BufferPool()
    memory = id(pool.take(SIZE * 100).obj)

    assert id(pool.take(SIZE).obj) != memory


def test_what_is_kept_unused_is_bounded() -> None:
    pool = BufferPool(kept_bytes=4 * SIZE)

    views = [pool.take(SIZE) for _ in range(10)]

    assert sum(len(one.memory) for one in pool._kept) <= 4 * SIZE
    assert len({id(view.obj) for view in views}) == 10


def test_memory_that_was_not_used_for_a_while_is_given_back() -> None:
    now = 0.0
    pool = BufferPool(kept_s=60.0, clock=lambda: now)
    held, unused = pool.take(SIZE), id(pool.take(2 * SIZE).obj)

    now = 40.0
    assert id(pool.take(2 * SIZE).obj) == unused
    now = 99.0
    pool.take(1)
    assert {id(one.memory) for one in pool._kept} == {id(held.obj), unused}
    now = 130.0
    pool.take(1)
    assert [id(one.memory) for one in pool._kept] == [id(held.obj)]

    memory = id(held.obj)
    del held
    gc.collect()
    assert id(pool.take(SIZE).obj) == memory


@given(st.lists(st.tuples(st.integers(1, 8 * SMALLEST), st.booleans()), max_size=40))
def test_no_two_answers_ever_share_memory(takes: list[tuple[int, bool]]) -> None:
    pool = BufferPool(kept_bytes=16 * SMALLEST)
    held: list[tuple[memoryview, int]] = []
    for number, (size, keep) in enumerate(takes):
        view = pool.take(size)
        assert len(view) == size
        view[:1] = view[-1:] = bytes([number])
        if keep:
            held.append((view, number))
    assert all(view[0] == view[-1] == number for view, number in held)


@given(st.integers(1, 20 * PIECE))
def test_growing_memory_keeps_its_beginning_and_reaches_the_size(size: int) -> None:
    pool = GrowingBuffers(kept_bytes=0)
    memory = pool.first(size)
    assert len(memory) == min(size, PIECE)
    memory[:1] = b"x"

    while len(memory) < size:
        before, memory = len(memory), pool.grown(memory, size)
        assert before < len(memory) <= min(size, 2 * before)

    assert memory[0] == ord("x")
