"""The records of the control and status topics, there and back."""

import msgspec
import pytest

from runtime.contract.records import control, heartbeat, job_status
from runtime.contract.records.control import AcceptLoss, Assign, Reconfigure, StopJobCommand, StopSlot
from runtime.contract.records.heartbeat import Heartbeat
from runtime.contract.records.job_status import JobKey, JobStatus, SlotKey, SlotReport, SlotStatus, SpecKey
from runtime.contract.spec import jobspec
from runtime.contract.spec.jobspec import ClusterSpec, FlowSpec, JobExit, JobSpec, SelectionSpec

SPEC = JobSpec(
    job="j",
    topology="t",
    destination="dc2",
    clusters={"dc1": ClusterSpec(bootstrap="a:1"), "dc2": ClusterSpec(bootstrap="b:1")},
    flows=[
        FlowSpec(name=f"f{n}", source="dc1", destination="dc2", topics=SelectionSpec(include=["x"] * 20))
        for n in range(20)
    ],
)


@pytest.mark.parametrize(
    "command", [StopJobCommand("1"), Reconfigure("2", SPEC), AcceptLoss("3", "f1", [("orders", 7)])]
)
def test_commands(command):
    assert control.decode_command(control.encode(command)) == command


@pytest.mark.parametrize("word", [Assign("d", msgspec.Raw(b'{"version": 1}')), StopSlot("d")])
def test_words(word):
    assert control.decode_slot_message(control.encode(word)) == word


@pytest.mark.parametrize("value", [b"", b"\x02{}", b"\x01{", b"\x01junk", b'\x01{"type": "dance"}'])
def test_what_is_not_understood_is_said(value):
    with pytest.raises(control.UnreadableControl):
        control.decode_command(value)


@pytest.mark.parametrize("changes", [{"version": 2}, {"clusters": {"dc2": ClusterSpec(bootstrap="b:1")}}])
def test_a_job_is_not_told_what_no_job_could_start_with(changes):
    told = control.encode(Reconfigure("2", msgspec.structs.replace(SPEC, **changes)))
    with pytest.raises(control.UnreadableControl, match=r"version 2|dc1 is not in clusters"):
        control.decode_command(told)


def test_status_records():
    status = JobStatus("j", "t", "d", "running", 1, 1)
    report = SlotReport("d", 1, SlotStatus(0, 1, 1))
    assert job_status.decode_job(job_status.encode(status)) == status
    assert job_status.decode_slot(job_status.encode(report)) == report
    assert job_status.decode_spec(job_status.encode(SPEC)) == SPEC
    with pytest.raises(ValueError, match="version"):
        job_status.decode_job(b"\x07")


@pytest.mark.parametrize("key", [JobKey("j"), SpecKey("j"), SlotKey("j", 3)])
def test_status_keys(key):
    assert job_status.decode_key(job_status.encode_key(key)) == key


def test_keys_of_a_newer_version_are_passed_over():
    assert job_status.decode_key(b'["weather", "j"]') is None
    assert job_status.decode_key(None) is None


def test_heartbeats():
    beat = Heartbeat("f", "j", "id", 7)
    assert heartbeat.decode(heartbeat.encode(beat)) == beat
    assert heartbeat.topic_there("f") != heartbeat.topic_there("g")
    with pytest.raises(ValueError, match="version"):
        heartbeat.decode(b"\x02{}")


def test_a_supervisor_knows_what_is_final():
    assert [one for one in JobExit if not one.final] == [JobExit.FAILED]


def test_a_spec_with_routes_and_declared_keys_comes_back():
    route = jobspec.RouteSpec(name="r", source="dc1", destination="dc2", topics=SelectionSpec(include=["x"]))
    spec = msgspec.structs.replace(SPEC, routes=[route], declared={"x": ["retention.ms"]})
    assert jobspec.decode(jobspec.encode(spec)) == spec
