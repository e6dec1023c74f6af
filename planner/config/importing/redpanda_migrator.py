"""Converts a configuration of Redpanda Connect with `redpanda_migrator` as input and output.

The bundles (`redpanda_migrator_bundle`), which older versions have, hold the same below one more key.
"""

import re
from collections.abc import Sequence

from planner.config.importing.declared import DeclaredResources
from planner.config.importing.document import ConvertedTopology, Fields, NoCounterpart, literal, trees
from planner.model.diagnostic import Failure, error
from planner.model.topology import Flow, Selection, secret_variable
from runtime.contract.client.stores import Setting
from runtime.contract.spec.flow import ConfigsSpec, Earliest, GroupsSpec, Latest, OriginCommitsSpec
from runtime.contract.spec.rename import Rename, Template

WHAT = "a YAML configuration of Redpanda Connect"
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::[^}]*)?\}")
_ROWS = (
    NoCounterpart(
        "schema_registry.*|migrate_schemas.*|translate_schema_ids|schemas",
        "schemas: of a flow brings schemas from one registry to another",
        loss=True,
    ),
    NoCounterpart(
        "consumer_group|commit_period|auto_replay_nacks|rebalance_timeout|session_timeout|heartbeat_interval"
        "|instance_id",
        "the ledger at the destination is the flow's position, and it is exact",
    ),
    NoCounterpart(
        "batching|max_in_flight|fetch_.*|max_.*|partition_buffer_bytes|multi_header|compression|idempotent_write"
        "|metadata_max_age|timeout|broker_write_max_bytes|batch_.*|topic_lag_refresh_period|key|partition(er)?"
        "|timestamp(_ms)?|metadata|allow_auto_topic_creation|conn_.*|request_timeout_overhead|tcp|metrics_labels",
        "whole record batches are copied as they are, so there is nothing to tune here",
    ),
    NoCounterpart(
        "replication_factor_override|input_.*|output_resource|label", "the flow names both of its ends"
    ),
    NoCounterpart(
        "offset_.*|is_serverless|serverless|rack_id|client_id", "the product's own clients choose it"
    ),
    NoCounterpart("http|logger|metrics|tracer|redpanda|shutdown_.*", "a job runs on Spark, jobs: says how"),
    NoCounterpart(
        "pipeline|.*processors",
        "records are copied as they are: transform: of a flow changes them",
        loss=True,
    ),
)

_TLS = {"root_cas_file": "ssl.ca.location"}
_CERTIFICATE = {"cert_file": "ssl.certificate.location", "key_file": "ssl.key.location"}
_TLS_ROWS = (
    NoCounterpart("enable_renegotiation", "TLS is not negotiated again"),
    NoCounterpart(
        "skip_cert_verify",
        "brokers are verified: ssl.ca.location says by which certificates",
        loss=True,
        without_effect="false",
    ),
    NoCounterpart(
        "root_cas|cert|key|password|client_certs",
        "write it into a file, and its path below client:",
        loss=True,
    ),
)
_GROUP_ROWS = (
    NoCounterpart("interval|fetch_timeout", "offsets are translated every groups.every"),
    NoCounterpart("only_empty", "groups with members are translated too", loss=True, without_effect="false"),
    NoCounterpart("skip_.*", "groups.include and groups.exclude choose", loss=True, without_effect="false"),
)


def convert(files: Sequence[tuple[str, str]], name: str) -> ConvertedTopology:
    """Converts configurations. Failure: one has no redpanda_migrator at both ends."""
    declared = DeclaredResources()
    for file, text in files:
        for node in trees(text, file, WHAT):
            _convert(Fields.of(node, file, declared.notes), declared)
    return declared.topology(name, "redpanda_migrator")


def _convert(root: Fields, declared: DeclaredResources) -> None:
    ends = [_migrator(root.below(side)) for side in ("input", "output")]
    if not all(ends):
        hint = f"name {WHAT} with redpanda_migrator as input and as output"
        raise Failure(error(f"{root.file} copies nothing with redpanda_migrator", hint))
    source, destination = (
        _cluster(end, side, declared) for end, side in zip(ends, ("source", "destination"), strict=True)
    )
    read, written = ends
    flow = declared.flow_name(f"{source}-to-{destination}", root)
    from_oldest = read.flag(True, "start_from_oldest")
    acls = written.flag(False, "sync_topic_acls")
    if acls:
        written.note(
            "sync_topic_acls",
            "as with the migrator, a rule that allows WRITE is never mirrored: declare it below acls:",
            loss=False,
        )
    late = read.text("start_offset") in ("latest", "committed") or not from_oldest
    declared.flows[flow] = Flow(
        flow,
        source,
        destination,
        _topics(read),
        rename=_rename(written),
        start=Latest() if late else Earliest(),
        configs=ConfigsSpec("set"),
        replication=written.number("topic_replication_factor", "replication_factor"),
        groups=_groups(written),
        acls_sync=acls,
        origin_commits=OriginCommitsSpec(),
    )
    for part in (*ends, root):
        part.explain(_ROWS)


def _migrator(side: Fields) -> Fields:
    """Returns the settings of the migrator at one end."""
    bundle = side.below("redpanda_migrator_bundle")
    migrator = (bundle or side).below("redpanda_migrator")
    if migrator:
        bundle.explain(_ROWS)
        side.explain(_ROWS)
    return migrator


def _cluster(end: Fields, side: str, declared: DeclaredResources) -> str:
    addresses = end.texts("seed_brokers")
    host = re.sub(r"^\w+://|:\d+$", "", addresses[0]) if addresses else ""
    plain = re.fullmatch(r"[\d.]*|\[.*|(localhost|kafka)(\..*)?", host) or _VARIABLE.search(
        ",".join(addresses)
    )
    candidates = (side,) if plain else (host.split(".")[0], host)
    identity = tuple(sorted(addresses)) or (end.file, str(end.line), side)
    name = declared.name(identity, end, *candidates)
    tls = end.below("tls")
    encrypted = tls.flag(False, "enabled")
    client: dict[str, Setting] = {"security.protocol": "SSL"} if encrypted else {}
    paths: dict[str, Setting] = {}
    certificates = tls.each("client_certs")[:1]
    for part, keys in [(tls, _TLS), *((certificate, _CERTIFICATE) for certificate in certificates)]:
        if encrypted:
            paths |= part.paths(keys)
        part.explain(_TLS_ROWS)
    for login in end.each("sasl")[:1]:
        mechanism = (login.text("mechanism") or "none").upper()
        if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            client = declared.login(name, mechanism, tls=encrypted)
            for key in ("username", "password"):
                variable = _VARIABLE.fullmatch(login.text(key) or "")
                named = variable["name"] if variable else secret_variable(name, f"sasl.{key}")
                client[f"sasl.{key}"] = {"env": named}
                if variable is None:
                    login.note(key, f"it is not copied: set the environment variable {named}", loss=False)
        elif mechanism != "NONE":
            login.note("mechanism", f"write how to log in by {mechanism[:40]}: docs/logins.md says how")
        login.explain()
    bootstrap = ",".join(addresses)
    if _VARIABLE.search(bootstrap):
        end.note("seed_brokers", "variables give the addresses: write clusters: with them")
        bootstrap = ""
    return declared.cluster(name, end, bootstrap, client | paths)


def _topics(read: Fields) -> Selection:
    """Returns the topics. A regex of Go matches a part of a name, ours the whole name."""
    names = read.texts("topics")
    include = read.texts("regexp_topics_include")
    exclude = tuple(map(_whole, read.texts("regexp_topics_exclude")))
    if read.flag(False, "regexp_topics"):
        include, names = (*include, *names), ()
    names = tuple(name.strip() for text in names for name in text.split(",") if name.strip())
    if any(":" in name for name in names):
        reason = "partitions and offsets are chosen behind a colon: a flow copies every partition from start"
        read.note("topics", reason)
        names = tuple(name.partition(":")[0] for name in names)
    chosen = (*map(literal, names), *map(_whole, include))
    return Selection(chosen or (".*",), exclude)


def _groups(written: Fields) -> GroupsSpec:
    """Returns the groups that are translated. `consumer_groups` is a flag, or a map with one."""
    if not written.flag(True, "consumer_groups"):
        return GroupsSpec(sync=False)
    groups = written.below("consumer_groups")
    spec = GroupsSpec(
        tuple(map(_whole, groups.texts("include"))) or GroupsSpec().include,
        tuple(map(_whole, groups.texts("exclude"))),
        sync=groups.flag(True, "enabled"),
    )
    groups.explain(_GROUP_ROWS)
    return spec


def _whole(pattern: str) -> str:
    """Returns a regex of the whole name for one that matches a part."""
    if "|" in pattern:  # its anchors may belong to an alternative
        return f".*(?:{pattern}).*"
    begin = "" if pattern.startswith("^") else ".*"
    end = "" if pattern.endswith("$") and not pattern.endswith("\\$") else ".*"
    whole = pattern.removeprefix("^")
    return f"{begin}{whole.removesuffix('$') if not end else whole}{end}"


def _rename(written: Fields) -> Rename:
    """Returns the rename. Only a text around the topic's own name has an inverse."""
    prefix = written.text("topic_prefix") or ""
    topic = written.text("topic")
    if topic is not None:
        match = re.fullmatch(
            r"(?P<before>[\w.-]*)\$\{!\s*(?:metadata\(\"kafka_topic\"\)|@kafka_topic)\s*\}(?P<after>[\w.-]*)",
            topic,
        )
        if match is None:
            written.note("topic", "this name can't be written as a rename with an inverse: look at rename")
        else:
            return Template(f"{prefix}{match['before']}{{topic}}{match['after']}")
    return Template(f"{prefix}{{topic}}")
