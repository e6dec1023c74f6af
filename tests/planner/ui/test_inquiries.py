"""Questions on demand: asked once for all, kept with their age, failures kept too, bounded."""

import asyncio
import threading

from planner.model.diagnostic import Failure, error
from planner.ui.inquiries import AT_ONCE, MOST_KEPT, MOST_WAITING, Inquiries


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


def test_viewers_who_ask_at_once_share_one_answer() -> None:
    async def story() -> tuple[int, set[int | None]]:
        inquiries, ask = Inquiries(lambda: None), Asked(free=False)
        several = [asyncio.ensure_future(inquiries.asked("plan", ask)) for _ in range(5)]
        await asyncio.sleep(0)
        ask.may_answer.set()
        found = await asyncio.gather(*several)
        return ask.times, {one.answer.value for one in found if one.answer is not None}

    assert asyncio.run(story()) == (1, {1})


def test_an_answer_is_kept_while_it_is_fresh_and_asked_again_on_demand() -> None:
    async def story() -> list[int]:
        rung = asyncio.Event()
        inquiries, ask, times = Inquiries(rung.set), Asked(), []
        await inquiries.asked("plan", ask)
        await inquiries.asked("plan", ask, fresh_s=60)
        times.append(ask.times)
        rung.clear()
        inquiries.again("plan", ask)
        await rung.wait()
        times.append(ask.times)
        return times

    assert asyncio.run(story()) == [1, 2]


def test_a_failure_is_an_answer_too() -> None:
    def refuse() -> int:
        raise Failure(error("dc1 does not answer", "look at it"))

    def break_down() -> int:
        raise RuntimeError("broken")

    async def story() -> list[str]:
        inquiries = Inquiries(lambda: None)
        found = [await inquiries.asked(number, ask) for number, ask in enumerate((refuse, break_down))]
        return [str(one.answer.failure[0]) for one in found if one.answer is not None]

    assert asyncio.run(story()) == [
        "dc1 does not answer — look at it",
        "unexpected RuntimeError: RuntimeError('broken')",
    ]


def test_a_few_run_at_once_and_not_too_many_wait() -> None:
    async def story() -> tuple[int, int, int]:
        inquiries, ask = Inquiries(lambda: None), Asked(free=False)
        for number in range(MOST_WAITING + 1):
            inquiries.again(number, ask)
        await asyncio.sleep(0)
        running = ask.times
        refused = await inquiries.asked(MOST_WAITING, ask)
        ask.may_answer.set()
        last = await inquiries.asked(MOST_WAITING - 1, ask, fresh_s=60)
        await last.answered.wait()
        assert refused.answer is not None
        return running, len(refused.answer.failure), ask.times

    running, refused, times = asyncio.run(story())
    assert running <= AT_ONCE
    assert (refused, times) == (1, MOST_WAITING)


def test_the_least_recently_asked_are_forgotten() -> None:
    async def story() -> int:
        inquiries, ask = Inquiries(lambda: None), Asked()
        for number in range(MOST_KEPT + 1):
            await inquiries.asked(number, ask)
        await inquiries.asked(MOST_KEPT, ask)
        before = ask.times
        await inquiries.asked(0, ask)
        return ask.times - before

    assert asyncio.run(story()) == 1
