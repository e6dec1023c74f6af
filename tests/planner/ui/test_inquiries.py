"""Questions on demand: asked once for all, kept with their age, failures kept too, bounded."""

import asyncio
import threading

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


def test_an_older_answer_is_shown_while_it_is_asked_again() -> None:
    async def story() -> tuple[int | None, bool]:
        inquiries, ask = Inquiries(lambda: None), Asked()
        await inquiries.asked("plan", ask)
        ask.may_answer.clear()
        found = await inquiries.asked("plan", ask, fresh_s=-1)
        assert found.answer is not None
        shown = found.answer.value, found.begun_ms is not None
        ask.may_answer.set()
        await found.answered.wait()
        return shown

    assert asyncio.run(story()) == (1, True)


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


def test_questions_that_hang_free_their_places_and_are_not_asked_again_meanwhile() -> None:
    async def story() -> tuple[list[str], int | None, int, int | None]:
        inquiries, hung, good = Inquiries(lambda: None, answer_s=0.05), Asked(free=False), Asked()
        stuck = [await inquiries.asked(number, hung) for number in range(AT_ONCE)]
        said = [str(one.answer.failure[0]) for one in stuck if one.answer is not None]
        other = await inquiries.asked("good", good)
        inquiries.again(0, hung)
        times = hung.times
        hung.may_answer.set()
        while stuck[0].overdue:
            await asyncio.sleep(0)
        late = stuck[0].answer
        return said, other.answer.value if other.answer else None, times, late.value if late else None

    said, answered, times, late = asyncio.run(story())
    assert said == ["no answer within 0.05 s — it is shown here when it comes"] * AT_ONCE
    assert (answered, times) == (1, AT_ONCE)
    assert late is not None


def test_threads_that_hang_are_few() -> None:
    async def story() -> tuple[int, str]:
        inquiries, hung = Inquiries(lambda: None, answer_s=0.01), Asked(free=False)
        for number in range(MOST_OVERDUE + AT_ONCE + 1):
            last = await inquiries.asked(number, hung)
        times = hung.times
        hung.may_answer.set()
        assert last.answer is not None
        return times, str(last.answer.failure[0])

    times, said = asyncio.run(story())
    assert times == MOST_OVERDUE
    assert said.startswith("too many questions wait")
