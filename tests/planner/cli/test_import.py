"""`repl import` as a person runs it."""

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from planner.cli.app import run
from runtime.contract.spec.naming import REGISTRY
from tests.commands import repl
from tests.records import create_topic, wait_for

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[1] / "config" / "importing" / "example.properties"
REPLICATOR = EXAMPLE.with_name("example.json")


def test_mm2_goes_to_stdout_and_what_it_lost_to_stderr() -> None:
    done = repl("import", "--mm2", str(EXAMPLE))
    assert done.returncode == 0, done.stderr
    assert "name: primary-to-backup" in done.stdout
    assert "# some.thing.unheard.of (line 29): it has no counterpart" in done.stdout
    assert "example.properties:29:1: some.thing.unheard.of: it has no counterpart" in done.stderr
    assert "w:ord" not in done.stdout + done.stderr


def test_mm2_into_a_file_that_validates_and_never_over_another(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    done = repl("import", "--mm2", str(EXAMPLE), "-o", str(file), "--name", "shop")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Wrote {file}: 1 flow of example.properties.")
    assert repl("validate", str(file)).returncode == 0
    again = repl("import", "--mm2", str(EXAMPLE), "-o", str(file))
    assert again.returncode == 1
    assert "is there already" in again.stderr


def test_a_state_of_terraform_shows_no_secret() -> None:
    done = repl("import", "--terraform", str(EXAMPLE.with_name("examples") / "terraform.tfstate"), "--json")
    assert done.returncode == 0, done.stderr
    assert "kafka_user_scram_credential.app" in done.stdout
    assert "orders" in json.loads(done.stdout)["yaml"]
    for secret in ("w:ord", "KEYKEYKEY"):
        assert secret not in done.stdout + done.stderr


def test_a_name_in_a_file_makes_no_line_of_its_own(tmp_path: Path) -> None:
    """The topology may be read by others, as a file of theirs: it is no dump of records."""
    evil = {"address": "kafka_quota.x\nerror: all is lost\n\x1b[31m", "type": "kafka_quota", "values": {}}
    topic = {"address": "kafka_topic.a", "type": "kafka_topic", "values": {"name": "a"}}
    state = tmp_path / "show.json"
    state.write_text(json.dumps({"values": {"root_module": {"resources": [evil, topic]}}}))
    done = repl("import", "--terraform", str(state), "-o", str(tmp_path / "t.yaml"))
    assert done.returncode == 0, done.stderr
    assert r"kafka_quota.x\nerror: all is lost\n\x1b[31m: declare it" in done.stderr
    assert "\n# kafka_quota.x\\nerror: all is lost" in (tmp_path / "t.yaml").read_text()
    (tmp_path / "usual").touch()
    assert (tmp_path / "t.yaml").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["show.json", "t.yaml", "usual"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "which cluster?"),
        (("--mm2", str(EXAMPLE), "--name", "a b"), "'a b' is no name for a topology"),
        (("dc1", "--mm2", str(EXAMPLE)), "--mm2 reads a file and asks no cluster"),
        (("--mm2", str(EXAMPLE), "--adopt"), "--mm2 reads a file and asks no cluster"),
        (("dc1", "--bootstrap", "a:1", "--adopt"), "--adopt needs a topology to adopt for"),
        (("dc1", "--take-over"), "--take-over goes with --mm2"),
        (("--replicator", str(REPLICATOR), "--take-over"), "--from-group with --replicator"),
        (("--mm2", str(EXAMPLE), "--from-group", "g"), "--from-group with --replicator"),
        (("--mm2", str(EXAMPLE), "--force"), "--force with one of them"),
        (("--mm2", str(EXAMPLE), "--take-over"), "PRIMARY_SASL_PASSWORD"),
        (("--replicator", str(REPLICATOR), "--from-group", "g"), "no connector of the files commits by"),
        (("--strimzi", "x", "--terraform", "y"), "--strimzi reads a file and asks no cluster"),
        (("--jikkou", "x", "dc1"), "--jikkou reads a file and asks no cluster"),
        (("--terraform", "no-such-file"), "no-such-file can't be read"),
        (("--terraform", str(EXAMPLE.parent)), "it is no file"),
        (("--strimzi", str(EXAMPLE)), "holds no KafkaMirrorMaker2 resource"),
        (("--mm2", "no-such-file"), "no-such-file can't be read"),
        (("--replicator", "no-such-file"), "no-such-file can't be read"),
        (("--replicator", str(EXAMPLE)), "is no JSON"),
        (("--replicator", str(REPLICATOR), "dc1"), "--replicator reads a file and asks no cluster"),
        (("--replicator", str(REPLICATOR), "--mm2", str(EXAMPLE)), "--mm2 reads a file and asks no cluster"),
        (("dc3", "--path", "plans/examples/active-active.yaml"), "there is no cluster dc3 in this topology"),
        (("dc1", "dc2", "--bootstrap", "a:1"), "--bootstrap is for one cluster"),
        (("dc1", "--bootstrap", "a:1", "--topics", "("), "is no regex"),
        (("dc1", "--bootstrap", "127.0.0.1:1"), "refused the connection: nothing listens there"),
        (("dc1", "--client-config", "x"), "--client-config goes with --bootstrap"),
        (("dc1", "--bootstrap", "a:1", "--client-config", "no-such-file"), "no-such-file can't be read"),
    ],
)
def test_what_can_not_be_imported_is_said_in_one_line(arguments, why, capsys) -> None:
    assert run(["import", *arguments]) == 1
    said = capsys.readouterr()
    assert why in said.err
    assert said.out == ""


@pytest.mark.long
@pytest.mark.integration
def test_planning_what_was_imported_changes_nothing(own_lab, tmp_path: Path) -> None:
    from tests.labs import spec

    lab = own_lab(spec("dc1"), spec("dc2"))
    for cluster in ("dc1", "dc2"):
        create_topic(lab.clusters[cluster].client, "orders", 3, config={"retention.ms": "604800000"})
    create_topic(lab.clusters["dc1"].client, "events", 1, config={"cleanup.policy": "compact,delete"})
    topology = tmp_path / "have" / "topology.yaml"
    topology.parent.mkdir()
    topology.write_text(
        "apiVersion: repl/v1\nname: have\nclusters:\n"
        + "".join(f"  {name}: {{bootstrap: '{one.bootstrap}'}}\n" for name, one in lab.clusters.items())
        + "topics: [{name: any, cluster: dc1}]\n"
    )
    file = tmp_path / "imported.yaml"
    done = repl("import", "dc1", "dc2", "--path", str(topology), "-o", str(file))
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    assert "- {name: orders, cluster: [dc1, dc2], config: {retention.ms: 7d}}" in text or (
        "- {name: orders, cluster: [dc1, dc2], partitions: 3, config: {retention.ms: 7d}}" in text
    )
    assert f"id: {lab.clusters['dc1'].cluster_id}" in text.replace('"', "")
    planned = repl("plan", str(file), "--json")
    assert planned.returncode == 0, planned.stderr
    actions = [one["change"]["actions"] for one in json.loads(planned.stdout)["resource_changes"]]
    assert len(actions) == 3
    assert all(one == ["no-op"] for one in actions)

    def adopted() -> dict[str, bool]:
        told = json.loads(repl("plan", str(file), "--json").stdout)
        return {one["address"]: one["adopted"] for one in told["resource_changes"]}

    registered = {"topic.dc1.events": False, "topic.dc1.orders": False, "topic.dc2.orders": True}
    admin = AdminClient(dict(lab.clusters["dc1"].client))
    for _ in range(2):
        done = repl("import", "dc1", "--path", str(file), "--adopt", "--auto-approve")
        assert done.returncode == 0, done.stderr
        assert adopted() == registered
        admin.delete_topics([REGISTRY])[REGISTRY].result()
        wait_for(lambda: REGISTRY not in admin.list_topics(timeout=60).topics)
        assert all(adopted().values())  # it was lost, and the next round rebuilds it
