"""Is each cluster the one that the topology means?"""

from planner.model.diagnostic import ExitCode, Severity
from planner.model.topology import Cluster
from planner.observe.observer import same_cluster, wrong_clusters

PINNED = Cluster("dc1", "a:9092", id="AAA")
FREE = Cluster("dc2", "b:9092")
BOTH = {"dc1": PINNED, "dc2": FREE}


def test_the_pinned_cluster_is_fine_and_so_is_one_without_a_pin() -> None:
    assert wrong_clusters(BOTH, {"dc1": "AAA", "dc2": "anything"}) == []


def test_another_cluster_is_refused_by_name() -> None:
    (only,) = wrong_clusters(BOTH, {"dc1": "BBB", "dc2": "anything"})
    assert only.exit is ExitCode.REFUSED
    assert only.summary == "dc1 is pinned to cluster id AAA, but a:9092 is cluster BBB"


def test_a_cluster_that_did_not_answer_is_not_judged() -> None:
    assert wrong_clusters(BOTH, {"dc2": "x"}) == []


def test_two_names_for_one_cluster_are_said_aloud() -> None:
    (only,) = same_cluster({"dc1": "AAA", "dc2": "AAA", "dc3": "CCC"})
    assert only.severity is Severity.WARNING
    assert only.summary == "dc1 and dc2 are the same cluster (id AAA)"
    assert same_cluster({"dc1": "AAA", "dc2": "BBB"}) == []
