"""A value that the broker keeps to itself stands in no change, whatever happens to its topic."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.diff import diff, drift
from planner.diff.typed_values import job_values
from planner.model.desired import DesiredTopic
from planner.model.observed import ConfigSource, ConfigValue, ObservedTopic, RegistryEntry
from planner.model.plan import SENSITIVE
from planner.model.topology import OnRemove
from runtime.contract.spec.jobspec import ClusterSpec, JobSpec, LaunchSpec
from tests.fakes.states import cluster, desired, live, observed, owned, topology, wanted

KEY = "vendor.credential"
values = st.none() | st.sampled_from(["canary-1", "canary-2"])


def topic(value: str | None, source: ConfigSource) -> ObservedTopic:
    return replace(live("orders", 6), config={KEY: ConfigValue(value, source, sensitive=True)})


def declared(value: str | None) -> DesiredTopic:
    return replace(wanted("orders", 6), config={} if value is None else {KEY: value})


def entry(value: str | None, on_remove: OnRemove) -> RegistryEntry:
    return replace(owned(declared(value)), on_remove=on_remove)


@given(values, values, values, st.booleans(), st.sampled_from(ConfigSource), st.sampled_from(OnRemove))
def test_no_change_holds_the_secret_of_a_topic(
    want: str | None,
    at: str | None,
    applied: str | None,
    is_owned: bool,
    source: ConfigSource,
    on_remove: OnRemove,
) -> None:
    entries = [entry(applied, on_remove)] if is_owned else []
    seen = observed(cluster(topic(at, source), owned=entries))

    planned = diff(desired(declared(want)), seen, topology())
    removed = diff(desired(), seen, topology())
    drifted = drift(desired(), seen)

    assert len(planned) == 1
    assert "canary" not in repr((planned, removed, drifted))


def test_a_recorded_secret_of_a_topic_that_is_gone_is_known_by_its_name() -> None:
    seen = observed(cluster(owned=[owned(wanted("orders", vendor_password="canary"))]))

    (change,) = drift(desired(), seen)

    assert change.before is not None
    assert change.before["config.vendor.password"] == SENSITIVE


@pytest.mark.parametrize("name", ["clusters.dc1.client.sasl.password", "conf", "options"])
def test_no_value_of_a_job_holds_a_secret_that_is_written_out(name: str) -> None:
    secret = {"sasl.password": "canary"}
    spec = JobSpec(
        job="j",
        topology="t",
        destination="dc1",
        clusters={"dc1": ClusterSpec(bootstrap="a", client={**secret, "ssl.key.password": {"env": "KEY"}})},
        flows=[],
        launch=LaunchSpec(conf={"spark.ssl.keyPassword": "canary"}, options=secret),
    )

    assert SENSITIVE in str(job_values(spec)[name])
    assert "canary" not in repr(job_values(spec))
    assert job_values(spec)["clusters.dc1.client.ssl.key.password"] == {"env": "KEY"}
