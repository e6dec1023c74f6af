"""The plan of a restore: records first, then the settings and the offsets of groups."""

from pathlib import Path

from planner.model.address import topic_address
from planner.model.change import Action
from planner.model.plan import Mode, Plan
from planner.model.restore import RestoredBackup, RestoredGroup, RestoredSubject, RestoredTopic
from planner.model.topology import AclRule, Cluster
from planner.plan.make import plan_from
from planner.plan.restore import HELD, fitting
from planner.plan.steps.acls import CreateAcl
from planner.plan.steps.restores import RestoreOffsets, RestoreRecords, RestoreSchemas
from planner.plan.steps.topics import AlterConfigs, CreateTopic
from planner.render.plan.documents import markdown
from planner.render.plan.json import json_text
from planner.render.plan.text import steps_text, text
from planner.state import planfile
from runtime.contract.records.manifest import BackupState, SnapshotOffset
from runtime.schemas.versions import SchemaVersion
from tests.fakes.replacing import replace
from tests.fakes.states import cluster, inputs, observed, topology

STATE = BackupState(folder="/mnt/archive", flow="to-archive", commit=7, digest="ab" * 32)
UNTIL = "2026-01-31T12:00:00Z"
ORDERS = RestoredTopic(
    name="orders",
    source="orders",
    source_id="aa" * 16,
    partitions=2,
    replication=3,
    config={"cleanup.policy": "compact", "retention.ms": "-1", "segment.bytes": "1048576"},
    ends=(4711, 0),
    records=4700,
)
OFFSET = SnapshotOffset(group="billing", topic="orders", partition=0, offset=42)
GROUP = RestoredGroup("billing", (OFFSET,), "2026-01-31T11:55:00Z")
RULE = AclRule("dc2", "TOPIC", "orders", "LITERAL", "User:app", "*", "READ", "ALLOW")


def plan(
    topic: RestoredTopic = ORDERS,
    groups: tuple[RestoredGroup, ...] = (GROUP,),
    acls: tuple[AclRule, ...] = (RULE,),
    subjects: tuple[RestoredSubject, ...] = (),
) -> Plan:
    shop = topology(clusters=[Cluster("dc2", bootstrap="localhost:9092")])
    backup = RestoredBackup("archive", STATE, UNTIL, "dc2", HELD, (topic,), groups, acls, subjects)
    return plan_from(inputs(shop, observed(cluster(name="dc2")), mode=Mode.RESTORE, backup=backup))


def test_records_come_before_the_topics_own_settings_and_group_offsets_after_them() -> None:
    made = plan()
    create, restore, own, group, acl = (
        next(step for step in made.steps if isinstance(step, kind))
        for kind in (CreateTopic, RestoreRecords, AlterConfigs, RestoreOffsets, CreateAcl)
    )
    assert isinstance(create, CreateTopic)
    assert create.config == {**HELD, "segment.bytes": "1048576"}
    assert isinstance(own, AlterConfigs)
    assert own.set == {"cleanup.policy": "compact"}
    assert own.unset == tuple(sorted(set(HELD) - {"cleanup.policy", "retention.ms"}))
    assert (restore.needs, own.needs, group.needs, acl.needs) == (
        (create.id,),
        (restore.id,),
        (restore.id,),
        (),
    )
    places = [made.steps.index(step) for step in (create, restore, own)]
    assert places == sorted(places)


def test_a_topic_that_exists_is_neither_made_nor_configured() -> None:
    made = plan(replace(ORDERS, exists=True), groups=())
    assert [type(step) for step in made.steps if step.address.kind == "topic"] == [RestoreRecords]
    (change,) = (one for one in made.changes if one.address == topic_address("dc2", "orders"))
    assert change.action is Action.UPDATE


def test_each_rule_and_each_offset_of_an_unsigned_snapshot_is_shown_to_be_approved() -> None:
    """A writer of the backup's folder may have forged them: the plan says so, and writes nothing else."""
    every = replace(RULE, resource="*", principal="User:mallory", operation="ALL")
    group = RestoredGroup("billing", (replace(OFFSET, metadata="forged"),), "2026-01-31T11:55:00Z")
    made = plan(groups=(GROUP, group), acls=(RULE, every))
    shown = "\n".join(text(made))
    for said in (
        "ACL rules (2) and offsets of consumer groups (2) are those that files in /mnt/archive name",
        "which are not signed",
        "+ rule: allow.User:mallory.ALL.topic.*",
        "! it applies to other topics too",
        "+ rule: allow.User:app.READ.topic.orders",
        "+ orders-0: 42",
        "+ orders-0: 42, metadata forged",
    ):
        assert said in shown
    written = [step for step in made.steps if isinstance(step, CreateAcl | RestoreOffsets)]
    assert {step.address for step in written} == {
        change.address for change in made.changes if change.address.kind in ("acl", "group")
    }
    assert plan(groups=(), acls=()).diagnostics == ()
    (only_groups,) = plan(acls=()).diagnostics
    assert "ACL" not in only_groups.summary + only_groups.hint


def test_it_is_shown_in_every_form() -> None:
    made = plan()
    shown = "\n".join(text(made))
    assert "shop: to restore the backup, repl will do this:" in shown
    assert (
        "# topic.dc2.orders will be created (orders of the backup archive, up to 2026-01-31T12:00:00Z)"
        in shown
    )
    assert "+ before offsets: 0: 4711, 1: 0" in shown
    assert "+ orders-0: 42" in shown
    assert "4,700 records of orders from /mnt/archive" in "\n".join(steps_text(made))
    assert "group.dc2.billing" in json_text(made)
    assert "orders" in markdown(made)


def test_settings_that_the_cluster_lacks_or_that_name_brokers_are_left_out() -> None:
    known = {"message.timestamp.before.max.ms": "1", "retention.ms": "1"}
    found = fitting(
        {
            "message.format.version": "2.8",
            "retention.ms": "5",
            "leader.replication.throttled.replicas": "0:1",
        },
        known,
    )
    assert found == {"retention.ms": "5"}


def test_schemas_are_registered_before_the_records_that_need_them() -> None:
    """A hostile name of a subject reaches no terminal and no page as it is."""
    name = "orders-\x1b]0;owned\x07value"
    subject = RestoredSubject(name, "orders-value", (SchemaVersion(3, 9, "ab"),), "FULL")
    made = plan(subjects=(subject,))
    register, records = (
        next(step for step in made.steps if isinstance(step, kind))
        for kind in (RestoreSchemas, RestoreRecords)
    )
    assert register.id in records.needs
    assert made.steps.index(register) < made.steps.index(records)
    shown = "\n".join([*text(made), *steps_text(made)])
    assert "versions: 1" in shown
    assert "3 (id 9)" in shown
    assert "\x1b" not in shown
    assert "\x1b" not in markdown(made)
    assert "\x1b" not in json_text(made)


def test_a_saved_plan_holds_the_schemas_that_were_approved(tmp_path: Path) -> None:
    subject = RestoredSubject("old.orders-value", "orders-value", (SchemaVersion(3, 9, "ab"),), "FULL")
    made = plan(subjects=(subject,))
    planfile.write(made, tmp_path / "restore.plan")
    assert planfile.load(tmp_path / "restore.plan").plan().steps == made.steps
