"""Requests of an apply: asked again, judged, denied, and compared with what is there already."""

from collections.abc import Mapping, Sequence

import pytest

from planner.apply.context import RequestGuard, refusal_is_final, send_with_retries
from planner.apply.denials import denial_in_log, lines_since, naming_right
from planner.apply.handlers import jobs
from planner.kafka import ClusterFailure, run
from planner.kafka.failures import Closed, NoAnswer, NoConnection, Refused, RequestRefused
from planner.model.address import topic_address
from planner.model.diagnostic import Failure, error
from planner.model.step import DONE, Result, Step, StepResult, failed
from planner.plan.steps.topics import AlterConfigs, CreateTopic, DeleteTopic, GrowPartitions, Reassign
from runtime.kafka.errors import ErrorCode
from tests.fakes.jobs import FakeJobs
from tests.fakes.tables import cases
from tests.planner.apply.handling import guard
from tests.runtime.launch.specs import spec_of


def step(name: str) -> CreateTopic:
    return CreateTopic(name, topic_address("dc1", name), "dc1", name, 1, 1, {})


Line = ErrorCode | ClusterFailure | None


class Broker:
    """Answers each step's requests from a script, the last line again and again."""

    def __init__(self, **script: list[Line]) -> None:
        self.script = script
        self.asked: list[list[str]] = []

    async def send(self, steps: Sequence[Step]) -> Mapping[str, RequestRefused]:
        self.asked.append([step.id for step in steps])
        refused = {}
        for step in steps:
            lines = self.script[step.id]
            match lines.pop(0) if len(lines) > 1 else lines[0]:
                case ErrorCode() as code:
                    refused[step.id] = RequestRefused(code)
                case ClusterFailure() as failure:
                    raise failure
        return refused


def results(
    broker: Broker,
    *names: str,
    may: RequestGuard | None = None,
    classify=refusal_is_final,
    within: float = 60.0,
) -> dict[str, StepResult]:
    steps = [step(name) for name in names]
    return run(send_with_retries(steps, broker.send, classify, may or guard(), within))


def test_only_what_failed_for_the_moment_is_sent_again():
    broker = Broker(a=[None], b=[ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, None])
    assert results(broker, "a", "b") == {"a": DONE, "b": DONE}
    assert broker.asked == [["a", "b"], ["b"], ["b"]]


async def as_wanted(_step: Step, _refused: RequestRefused) -> StepResult:
    return DONE


LOGIN = Refused("dc1:1 refused the credentials of u", "look at sasl.password")


@cases(
    "lines how tries result why",
    {
        "throttling": ([ErrorCode.THROTTLING_QUOTA_EXCEEDED, None], {}, 2, Result.DONE, ""),
        "no answer": ([Closed("dc1:1 closed it"), NoAnswer("dc1:1 is silent"), None], {}, 3, Result.DONE, ""),
        "a policy": ([ErrorCode.POLICY_VIOLATION], {}, 1, Result.FAILED, "POLICY_VIOLATION"),
        "a login": ([LOGIN], {}, 1, Result.FAILED, "refused the credentials of u; look at sasl.password"),
        "it is judged": ([ErrorCode.TOPIC_ALREADY_EXISTS], {"classify": as_wanted}, 1, Result.DONE, ""),
        "no lease": ([None], {"may": ["the lease is lost"]}, 0, Result.NOT_STARTED, "the lease is lost"),
        "a guard is asked before every try": (
            *([ErrorCode.NOT_CONTROLLER], {"may": [None, "interrupted"]}),
            *(1, Result.NOT_STARTED, "interrupted"),
        ),
        "a request that never left": (
            *([NoConnection("dc1:1 refuses")], {"may": [None, "interrupted"]}),
            *(1, Result.NOT_STARTED, "interrupted"),
        ),
        "a request whose answer was lost may be done": (
            *([Closed("dc1:1 closed it")], {"may": [None, "interrupted"]}),
            *(1, Result.FAILED, "dc1:1 closed it; it was not sent again: interrupted"),
        ),
    },
)
def test_how_often_a_request_is_sent_and_how_it_ends(lines, how, tries, result, why) -> None:
    broker = Broker(a=list(lines))
    may = {"may": guard(*how["may"])} if "may" in how else {}
    ended = results(broker, "a", **{**how, **may})["a"]
    assert (ended.result, len(broker.asked)) == (result, tries)
    assert why in ended.why


def test_it_gives_up_at_the_deadline_and_says_why():
    broker = Broker(a=[ErrorCode.NOT_CONTROLLER])
    verdict = results(broker, "a", within=0.3)["a"]
    assert verdict.result is Result.FAILED
    assert "given up after" in verdict.why
    assert "NOT_CONTROLLER" in verdict.why


AT = topic_address("dc2", "orders")
REFUSED = "Topic authorization failed. (TOPIC_AUTHORIZATION_FAILED)"
LINE = '2026-11-22T18:57:16Z INFO driver_message message="waiting: \\"a\\" CLUSTER_AUTHORIZATION_FAILED (31)"'


@pytest.mark.parametrize(
    ("step", "right"),
    [
        (CreateTopic("1", AT, "dc2", "orders", 1, 1, {}), "CREATE on the topic orders"),
        (GrowPartitions("1", AT, "dc2", "orders", 1, 2), "ALTER on the topic orders"),
        (AlterConfigs("1", AT, "dc2", "orders"), "ALTER_CONFIGS on the topic orders"),
        (DeleteTopic("1", AT, "dc2", "orders", "id"), "DELETE on the topic orders"),
        (Reassign("1", AT, "dc2", "orders", ((1,),), ((2,),)), "ALTER on the cluster"),
    ],
)
def test_a_refused_step_names_the_right(step: Step, right: str) -> None:
    expected = f"{REFUSED} — grant {right} at dc2 to the principal of this apply"
    assert naming_right(step, failed(REFUSED)).why == expected


def test_only_what_the_job_logged_since_its_start_counts() -> None:
    jobs = FakeJobs(mute=True, older=("before: TOPIC_AUTHORIZATION_FAILED",), log=("it starts",))

    async def since() -> list[str]:
        lines = await lines_since(jobs, "dc2")
        jobs.launch(spec_of("dc2"))
        return await lines()

    assert run(since()) == ["it starts"]


@pytest.mark.parametrize(
    ("logged", "found"),
    [
        (["it starts"], ""),
        (
            ["a: TOPIC_AUTHORIZATION_FAILED", LINE, "more"],
            r"waiting: \"a\" CLUSTER_AUTHORIZATION_FAILED (31)",
        ),
        (["a: TOPIC_AUTHORIZATION_FAILED (29)"], "a: TOPIC_AUTHORIZATION_FAILED (29)"),
    ],
)
def test_the_message_of_the_log_is_told_without_what_stands_before_it(logged: list[str], found: str) -> None:
    async def lines() -> list[str]:
        return logged

    async def look() -> str:
        return await denial_in_log(lines, every_s=0)()

    assert run(look()) == found


def test_a_status_that_can_not_be_read_fails_its_own_step() -> None:
    async def unreadable() -> StepResult:
        raise Failure(error("__repl.status at dc1 cannot be used"))

    why = "what the job reports can't be read any more: __repl.status at dc1 cannot be used"
    assert run(jobs._seen(unreadable())) == failed(why)
