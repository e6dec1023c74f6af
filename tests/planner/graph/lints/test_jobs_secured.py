"""What is said of a job whose Spark ports would not ask for a secret."""

from dataclasses import replace

import pytest

from planner.graph.lints.flows import jobs
from planner.model.topology import Job
from tests.fakes.states import topology

SPARK = "spark.authenticate"


@pytest.mark.parametrize(
    ("job", "codes"),
    [
        (Job("j"), []),
        (Job("j", conf={SPARK: "true"}), []),
        (Job("j", conf={SPARK: "false"}), ["spark-unauthenticated"]),
        (
            Job("j", launcher="yarn", conf={"spark.network.crypto.enabled": "False"}),
            ["spark-unauthenticated"],
        ),
        (Job("j", launcher="standalone"), ["spark-secret"]),
        (Job("j", launcher="standalone", conf={SPARK: "true"}), []),
        (Job("j", launcher="standalone", conf={SPARK: "false"}), ["spark-unauthenticated"]),
    ],
)
def test_a_job_without_authentication_is_said(job: Job, codes: list[str]) -> None:
    found = list(jobs(replace(topology(), jobs={"j": job})))

    assert [one.code for one in found] == codes
    assert all(one.address == "job.j" and "docs/launch.md" in one.way_out for one in found)
