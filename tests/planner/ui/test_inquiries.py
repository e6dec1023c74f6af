"""Questions on demand: asked once for all, kept with their age, failures kept too, bounded."""

import asyncio
import threading
from collections.abc import Hashable

from planner.model.diagnostic import Failure, error
from planner.ui.inquiries import AT_ONCE, MOST_KEPT, MOST_OVERDUE, MOST_WAITING, Inquiries


class Asked:
    """A question that waits until it may answer, and counts how often it was asked."""

    def __init__(self, *, free: bool = True) -> None:
        self.times = 0
        self.may_answer = threading.Event()
        if free:
            self.may_answer.set()

    def __call__(self) -> int:
        self.times += 1
        self.may_answer.wait()
        return self.times


async def answer(inquiries: Inquiries, key: Hashable, ask: Asked, fresh_s: float | None = None) -> int | None:
    found = await inquiries.asked(key, ask, fresh_s=fresh_s)
    return found.value


async def test_viewers_who_ask_at_once_share_one_answer() -> None:
    inquiries, ask = Inquiries(lambda: None), Asked(free=False)
    several = [asyncio.ensure_future(answer(inquiries, "plan", ask)) for _ in range(5)]
    await asyncio.sleep(0)
    ask.may_answer.set()
    assert await asyncio.gather(*several) == [1] * 5


async def test_an_answer_is_kept_while_it_is_fresh_and_asked_again_on_demand() -> None:
    rung = asyncio.Event()
    inquiries, ask = Inquiries(rung.set), Asked()
    assert [await answer(inquiries, "plan", ask, fresh_s) for fresh_s in (None, 60)] == [1, 1]
    rung.clear()
    inquiries.again("plan", ask)
    await rung.wait()
    assert ask.times == 2


async def test_an_older_answer_is_shown_while_it_is_asked_again() -> None:
    inquiries, ask = Inquiries(lambda: None), Asked()
    await inquiries.asked("plan", ask)
    ask.may_answer.clear()
    found = await inquiries.asked("plan", ask, fresh_s=-1)
    assert (found.value, found.begun_ms is not None) == (1, True)
    ask.may_answer.set()
    await found.answered.wait()


async def test_a_failure_is_an_answer_too() -> None:
    def refuse() -> int:
        raise Failure(error("dc1 does not answer", "look at it"))

    def break_down() -> int:
        raise RuntimeError("broken")

    inquiries = Inquiries(lambda: None)
    found = [await inquiries.asked(number, ask) for number, ask in enumerate((refuse, break_down))]
    assert [str(one.failure[0]) for one in found] == [
        "dc1 does not answer — look at it",
        "unexpected RuntimeError: RuntimeError('broken')",
    ]


async def test_a_few_run_at_once_and_not_too_many_wait() -> None:
    inquiries, ask = Inquiries(lambda: None), Asked(free=False)
    for number in range(MOST_WAITING + 1):
        inquiries.again(number, ask)
    await asyncio.sleep(0)
    assert ask.times <= AT_ONCE
    refused = await inquiries.asked(MOST_WAITING, ask)
    ask.may_answer.set()
    last = await inquiries.asked(MOST_WAITING - 1, ask, fresh_s=60)
    await last.answered.wait()
    assert (len(refused.failure), ask.times) == (1, MOST_WAITING)


async def test_the_least_recently_asked_are_forgotten() -> None:
    inquiries, ask = Inquiries(lambda: None), Asked()
    for number in (*range(MOST_KEPT + 1), MOST_KEPT):
        await inquiries.asked(number, ask)
    before = ask.times
    await inquiries.asked(0, ask)
    assert ask.times == before + 1


async def test_questions_that_hang_free_their_places_and_are_not_asked_again_meanwhile() -> None:
    inquiries, hung, good = Inquiries(lambda: None, answer_s=0.05), Asked(free=False), Asked()
    stuck = [await inquiries.asked(number, hung) for number in range(AT_ONCE)]
    assert [str(one.failure[0]) for one in stuck] == [
        "no answer within 0.05 s — it is shown here when it comes"
    ] * AT_ONCE
    assert await answer(inquiries, "good", good) == 1
    inquiries.again(0, hung)
    assert hung.times == AT_ONCE
    hung.may_answer.set()
    while stuck[0].overdue:
        await asyncio.sleep(0)
    assert (stuck[0].value, stuck[0].failure) == (AT_ONCE, ())


async def test_threads_that_hang_are_few() -> None:
    inquiries, hung = Inquiries(lambda: None, answer_s=0.01), Asked(free=False)
    for number in range(MOST_OVERDUE + AT_ONCE + 1):
        last = await inquiries.asked(number, hung)
    assert hung.times == MOST_OVERDUE
    hung.may_answer.set()
    assert str(last.failure[0]).startswith("too many questions wait")
