"""The steps of jobs through the real status and control topics; the jobs themselves are fakes."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from msgspec.structs import replace

from planner.apply.context import ApplyContext, JobTimeouts
from planner.apply.job_watch import JobWatch
from planner.apply.losses import Approve, accept_loss
from planner.kafka import ClusterClient, ClusterEndpoint, ClusterFailure, run_at
from planner.kafka.log import ValueReader
from planner.model.address import job_address
from planner.model.diagnostic import Failure, error
from planner.model.observed import LiveJob
from planner.model.step import DONE, Result, StepResult
from planner.observe.jobs import read_jobs
from planner.plan.steps.jobs import LaunchJob, ReconfigureJob, StopJob
from runtime.contract.launching import LaunchState
from runtime.contract.records import job_status
from runtime.contract.records.job_status import JobStatus, PartitionState, PartitionStatus, StatusKey
from runtime.contract.spec.cluster import ClusterSpec
from runtime.contract.spec.jobspec import FlowSpec, JobSpec
from runtime.contract.spec.launch import LaunchSpec
from runtime.contract.spec.naming import CONTROL, STATUS
from runtime.contract.spec.selection import SelectionSpec
from runtime.lab.lab import Lab
from tests.endpoints import endpoint
from tests.fakes.jobs import FakeJobs
from tests.fakes.tables import cases
from tests.planner.apply.handling import carried_out, context
from tests.planner.apply.test_steps import Notebook

pytestmark = pytest.mark.integration

PATIENT = JobTimeouts(copying_s=120, acknowledged_s=120, stopped_s=60, kill_after_s=30, heartbeat_s=10)
HASTY = JobTimeouts(
    copying_s=120, acknowledged_s=6, stopped_s=2, kill_after_s=1, heartbeat_s=2
)  # for what is waited for in vain

FAILING = dataclasses.replace(PATIENT, failing_s=1)
SHORT_OF_RIGHTS = dataclasses.replace(PATIENT, denied_s=1)


class Here:
    """One job with one flow at dc1 of the lab, and whoever launches it."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.endpoint = endpoint(lab, "dc1")
        self.jobs = FakeJobs()
        self.timeouts = PATIENT
        self.name = name
        flow = FlowSpec(name=name, source="dc2", destination="dc1", topics=SelectionSpec(include=("a",)))
        self.spec = JobSpec(
            job=name,
            topology="shop",
            destination="dc1",
            clusters={
                "dc1": ClusterSpec(bootstrap=self.endpoint.bootstrap),
                "dc2": ClusterSpec(bootstrap="x:1"),
            },
            flows=[flow],
        )

    def context(self, stop_reason: str | None = None, *, wait: bool = True) -> ApplyContext:
        of_job = {"launchers": self.jobs, "wait": wait, "timeouts": self.timeouts}
        return context(self.endpoint, Notebook(), stop_reason, **of_job)

    def perform(
        self, step: LaunchJob | ReconfigureJob | StopJob, context: ApplyContext | None = None
    ) -> StepResult:
        return carried_out(context or self.context(), step)[step.id]

    def launch(self, **more: object) -> LaunchJob:
        address = job_address(self.name)
        return LaunchJob("launch", address, "dc1", self.name, self.spec, **more)  # type: ignore[arg-type]

    def tell(self, **changes: object) -> ReconfigureJob:
        return ReconfigureJob("tell", job_address(self.name), "dc1", self.name, replace(self.spec, **changes))

    def stop(self, launch: LaunchSpec | None = None) -> StopJob:
        return StopJob("stop", job_address(self.name), "dc1", self.name, launch or LaunchSpec())

    def seen(self) -> tuple[bool, JobSpec | None]:
        async def read(client: ClusterClient) -> tuple[LiveJob, ...]:
            async with ValueReader(client, STATUS) as reader:
                return await read_jobs(reader, client.name, "shop")

        jobs = run_at(self.endpoint, read)
        one = next(one for one in jobs if one.name == self.name)
        return one.live, one.spec

    def accept_loss(
        self, approve: Approve, reported_s: float = 60.0, acknowledged_s: float = 60.0
    ) -> list[PartitionStatus]:
        return run_at(
            self.endpoint,
            lambda client: accept_loss(client, self.name, self.name, approve, reported_s, acknowledged_s),
        )

    def status(self) -> JobStatus | None:
        async def watched(client: ClusterClient) -> JobStatus | None:
            async with JobWatch(client) as watch:
                return watch.job(self.name)

        return run_at(self.endpoint, watched)


@pytest.fixture
def here(lab: Lab, fresh: Callable[[str], str]) -> Iterator[Here]:
    made = Here(lab, fresh("job"))
    yield made
    made.jobs.kill()


def test_a_life(here: Here) -> None:
    assert here.perform(here.launch(topics={here.name: 3})) == DONE
    assert here.seen() == (True, here.spec)

    paused = [replace(here.spec.flows[0], state="paused")]
    assert here.perform(here.tell(flows=paused)) == DONE
    assert here.seen() == (True, replace(here.spec, flows=paused))

    assert here.perform(here.stop()) == DONE
    assert here.seen()[0] is False
    assert here.jobs.calls == [
        f"launch {here.name}",
        f"update {here.name}",
        f"stop {here.name}",
    ]


def test_what_an_apply_that_was_killed_left_goes_first(here: Here) -> None:
    here.perform(here.launch())

    assert here.perform(here.launch()) == DONE
    assert here.jobs.calls[1:] == [f"stop {here.name}", f"launch {here.name}"]


def test_one_that_ends_at_once_shows_the_end_of_its_log(here: Here) -> None:
    here.jobs.silent = True

    verdict = here.perform(here.launch())

    assert verdict.result is Result.FAILED
    assert "it was launched (a thread), but it ended" in verdict.why
    assert "the last line" in verdict.why
    assert here.perform(here.launch(), here.context(wait=False)) == DONE


DENIED = "waiting for dc1: __repl.status: TOPIC_AUTHORIZATION_FAILED (29)"
NO_IMAGE, KILLED = "the image repl:1 can't be pulled: not found", "the driver ended with 137 (OOMKilled)"


@cases(
    "jobs patience says",
    {
        "it lacks a right": (
            {
                "older": ("another driver: TOPIC_AUTHORIZATION_FAILED (29)",),
                "log": ("it starts", DENIED, "the last line"),
            },
            {"denied_s": 1},
            [
                f"it was launched (a thread), but {DENIED} — grant the right",
                f"the last lines of its log:\n    it starts\n    {DENIED}\n    the last line",
            ],
        ),
        "its process does not start": (
            {"waits": NO_IMAGE},
            {"queued_s": 3},
            [f"it was launched (a thread), but {NO_IMAGE} — "],
        ),
        "its driver ends again and again": (
            {"waits": KILLED, "state": LaunchState.RESTARTING},
            {"queued_s": 3},
            [f"but {KILLED}"],
        ),
        "its driver ended": (
            {"waits": KILLED, "state": LaunchState.ENDED},
            {"queued_s": 3},
            [f"but it ended: {KILLED}"],
        ),
    },
)
def test_one_that_cannot_report_is_not_waited_for(here: Here, jobs, patience, says) -> None:
    here.jobs = FakeJobs(mute=True, **jobs)
    here.timeouts = dataclasses.replace(PATIENT, **patience)

    began = time.monotonic()
    verdict = here.perform(here.launch())

    assert time.monotonic() - began < 60
    assert verdict.result is Result.FAILED
    assert all(part in verdict.why for part in says)


def test_a_job_that_something_may_start_again_is_not_stopped(here: Here) -> None:
    here.perform(here.launch())
    here.jobs.keeps = "kubectl delete: no such host"

    verdict = here.perform(here.stop())

    assert verdict.result is Result.FAILED
    assert verdict.why == "something may start it again: kubectl delete: no such host — look at it"


def test_a_pod_that_is_left_fails_no_stop_of_a_job_that_has_ended(here: Here) -> None:
    kubernetes = LaunchSpec(launcher="kubernetes", master="k8s://h")
    here.perform(here.launch())
    here.jobs.left = "pods of the job are still there: repl-1 on node-7"

    assert here.perform(here.stop(launch=kubernetes)) == StepResult(Result.DONE, here.jobs.left)

    here.jobs.deaf = True
    here.perform(here.launch())
    here.timeouts = HASTY
    verdict = here.perform(here.stop(launch=kubernetes))
    assert verdict.result is Result.FAILED
    assert "it does not stop, and runs as" in verdict.why
    assert verdict.why.endswith(f"{here.jobs.left}; end it there, then apply again")


def test_a_partition_that_may_not_be_copied_ends_the_wait(here: Here) -> None:
    here.perform(here.launch())
    why = "a-0: TOPIC_AUTHORIZATION_FAILED (29)"
    here.jobs.running[here.name].stopped = [
        PartitionStatus(here.name, "a", 0, PartitionState.RETRYING, since_ms=0, why=why)
    ]
    here.timeouts = SHORT_OF_RIGHTS

    began = time.monotonic()
    verdict = here.perform(here.tell(slots=3))

    assert time.monotonic() - began < 60
    assert verdict.result is Result.FAILED
    assert f"flow.{here.name}: a-0 is not copied: {why} — grant the right; repl doctor" in verdict.why


def test_nothing_is_started_without_the_lease(here: Here) -> None:
    for step in (here.launch(), here.tell(), here.stop()):
        verdict = here.perform(step, here.context("the lease is lost"))
        assert (verdict.result, verdict.why) == (Result.NOT_STARTED, "the lease is lost")
    assert here.jobs.calls == []


def test_all_jobs_are_told_before_the_first_is_waited_for(
    here: Here, lab: Lab, fresh: Callable[[str], str]
) -> None:
    """Jobs may wait for each other's flows: the one that can't answer yet holds up no other."""
    other = Here(lab, fresh("job"))
    other.jobs = here.jobs
    for one in (here, other):
        one.perform(one.launch())
    here.jobs.running[here.name].kill()
    here.timeouts = HASTY
    steps = [here.tell(slots=3), other.tell(slots=3)]
    steps[1] = replace(steps[1], id="tell other")
    began = time.monotonic()

    verdicts = carried_out(here.context(), *steps)

    assert {step: one.result for step, one in verdicts.items()} == {
        "tell": Result.FAILED,
        "tell other": Result.DONE,
    }
    assert here.jobs.running[other.name].heard_at - began < HASTY.acknowledged_s
    assert f"update {here.name}" not in here.jobs.calls  # it runs the spec before, and would start by that


def test_a_job_is_changed_where_its_launcher_is_out_of_reach(here: Here) -> None:
    """In a disaster a machine may reach the destination alone."""
    here.perform(here.launch())
    here.jobs.unwritable = "kubectl was not found"
    paused = [replace(here.spec.flows[0], state="paused")]

    verdict = here.perform(here.tell(flows=paused))

    assert verdict.result is Result.DONE
    assert (
        "its spec could not be stored: kubectl was not found — look at it. A start in a new pod"
        in verdict.why
    )
    assert here.seen() == (True, replace(here.spec, flows=paused))


def test_a_flow_that_cannot_start_fails_its_step_at_once_and_says_what_is_left(here: Here) -> None:
    """Once it was waited for 4 minutes, and the reason stood in each of the last lines of the log."""
    here.timeouts, here.jobs.why = FAILING, "/data/lake: the folder is not there"
    began = time.monotonic()

    verdict = here.perform(here.launch(topics={here.name: 3}))

    assert time.monotonic() - began < 10
    assert verdict.result is Result.FAILED
    assert verdict.why == (
        f"it runs (a thread), but flow.{here.name} can't start: /data/lake: the folder is not there — correct"
        " that: the job stays and tries again by itself. Then run this again, which records the job as it is"
    )
    changed = here.perform(here.tell(slots=3))
    assert f"the command was sent, but flow.{here.name} can't start" in changed.why
    assert here.perform(here.tell(slots=4), here.context(wait=False)) == DONE


def test_one_that_does_not_stop_by_itself_is_stopped_by_its_launcher(here: Here) -> None:
    here.jobs.deaf = True
    here.perform(here.launch())
    here.timeouts = HASTY

    assert here.perform(here.stop()) == DONE
    assert here.seen()[0] is False
    status = here.status()
    assert status is not None
    assert (status.state, status.trouble) == ("stopped", "stopped by repl, after its end")
    assert status.stop_requested  # no standby starts it again


def test_one_that_runs_elsewhere_and_does_not_stop_is_named(here: Here) -> None:
    here.jobs.deaf = True
    here.perform(here.launch())
    elsewhere = context(here.endpoint, Notebook(), launchers=FakeJobs(), timeouts=HASTY)

    verdict = here.perform(here.stop(), elsewhere)

    assert verdict.result is Result.FAILED
    assert "it does not stop, and runs as" in verdict.why


def refused(lost: Sequence[PartitionStatus]) -> None:
    raise Failure(error(f"{len(lost)} not approved"))


def test_the_open_transaction_of_a_driver_that_died_hides_no_other_job(here: Here) -> None:
    here.perform(here.launch())
    died = JobStatus(
        job="died", topology="shop", driver="d", state="running", at_ms=int(time.time() * 1000), started_ms=0
    )
    settings = {"transactional.id": f"repl.{here.name}.died", "transaction.timeout.ms": 60_000}
    producer = Producer({"bootstrap.servers": here.endpoint.bootstrap, **settings})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(
        STATUS, key=job_status.encode_key(StatusKey("job", "died")), value=job_status.encode(died)
    )
    producer.flush()  # and never committed

    paused = [replace(here.spec.flows[0], state="paused")]
    assert here.perform(here.tell(flows=paused)) == DONE
    assert here.seen() == (True, replace(here.spec, flows=paused))
    producer.abort_transaction()


def test_losses_are_accepted_and_nothing_else(here: Here) -> None:
    here.perform(here.launch())
    job = here.jobs.running[here.name]
    lost, missing = (
        PartitionStatus(here.name, "a", number, state, since_ms=0)
        for number, state in enumerate((PartitionState.DATA_LOSS, PartitionState.LEDGER_MISSING))
    )
    job.stopped = [missing, lost]

    with pytest.raises(Failure, match="not approved"):
        here.accept_loss(refused)
    assert not job.accepted
    approved: list[PartitionStatus] = []
    said = here.accept_loss(approved.extend)
    assert (said, approved) == ([lost, missing], [lost])
    assert job.accepted == [(here.name, "a", lost.partition)]


def test_a_loss_whose_acceptance_fails_midway_is_accepted_by_the_next_try(here: Here) -> None:
    """The job refuses it, then dies with it, and then cannot be told of it. Nothing is accepted twice."""
    here.perform(here.launch())
    job = here.jobs.running[here.name]
    lost = PartitionStatus(here.name, "a", 0, PartitionState.DATA_LOSS, since_ms=0)
    job.stopped, job.refusal = [lost], "it has no such partition"
    with pytest.raises(Failure, match="it refused the command: it has no such partition"):
        here.accept_loss(lambda _: None)
    job.refusal, job.dies = "", True
    with pytest.raises(Failure, match="it has not carried out the command, after 3 s"):
        here.accept_loss(lambda _: None, acknowledged_s=3.0)
    assert not job.accepted

    job.kill()
    here.perform(here.launch())
    job = here.jobs.running[here.name]
    job.stopped = [lost]

    def cut_off(_: Sequence[PartitionStatus]) -> None:
        """Between the approval and the command, which is larger than the topic takes from now on."""
        limit_of_control(here.endpoint, "1")

    with pytest.raises(ClusterFailure):
        here.accept_loss(cut_off)
    limit_of_control(here.endpoint, None)
    assert not job.accepted
    assert here.accept_loss(lambda _: None) == [lost]
    assert job.accepted == [(here.name, "a", 0)]


def limit_of_control(place: ClusterEndpoint, most: str | None) -> None:
    """Sets the largest batch that the control topic takes, or the cluster's own again."""
    operation = AlterConfigOpType.SET if most is not None else AlterConfigOpType.DELETE
    entry = ConfigEntry("max.message.bytes", most or "", incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, CONTROL, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": place.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(timeout=60)
