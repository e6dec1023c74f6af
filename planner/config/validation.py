"""Checks the parts of a topology together: names exist, and nothing is declared twice or conflicts."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path, PurePath

from planner.config.files import is_topology_file
from planner.config.hints import did_you_mean, prose
from planner.config.language import scalars
from planner.config.language.build import built, is_endpoint, rename_of, requirement
from planner.config.language.endpoints import ENDPOINT_CODE, check_endpoints, check_flow_ends, place_of
from planner.config.language.reader import INVALID, ParsedRecord
from planner.config.language.scalars import WORDS
from planner.config.transforms import check_transform, registry_problems
from planner.config.yaml_tree import ScalarNode
from planner.model.diagnostic import Diagnostic, SourceLocation, error, warning
from planner.model.topology import (
    GATEWAYS,
    RESOURCES,
    AclRule,
    Fence,
    QuotaEntity,
    looks_secret,
)
from planner.model.topology.quotas import OF_ADDRESSES, OF_USERS
from runtime.contract.client.keys import TOKEN_ENDPOINT_URL, token_endpoint_problem
from runtime.contract.client.settings import SecurityProtocol
from runtime.contract.spec import rename
from runtime.contract.spec.acls import EVERYONE
from runtime.contract.spec.naming import metric_name

GLOB = re.compile(r"[A-Za-z0-9_\\.-]*[A-Za-z0-9_-]\*")
# What each launcher's master begins with.
MASTERS = {"local": "local", "standalone": "spark://", "yarn": "yarn", "kubernetes": "k8s://"}
# What Kafka knows for each kind of resource, beside ALL.
OPERATIONS = {
    "TOPIC": {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
    "GROUP": {"READ", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
    "CLUSTER": {
        "CREATE",
        "CLUSTER_ACTION",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
        "IDEMPOTENT_WRITE",
        "ALTER",
        "DESCRIBE",
    },
    "TRANSACTIONAL_ID": {"DESCRIBE", "WRITE"},
    "DELEGATION_TOKEN": {"DESCRIBE"},
    "USER": {"CREATE_TOKENS", "DESCRIBE_TOKENS"},
}
ENTITY = ("user", "client_id", "ip")
SUBJECTS = ("partitions", "replication")
_ALL_ADDRESSES = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound


def check(topology: ParsedRecord) -> list[Diagnostic]:
    """Returns all errors and warnings about the parts of a topology."""
    return [
        *_clusters(topology),
        *check_endpoints(topology),
        *_registries(topology),
        *_cluster_references(topology),
        *_topics(topology),
        *(problem for flow in topology["flows"] for problem in _flow(flow, topology)),
        *_duplicates("flow", ((flow.get("name"), flow.place("name")) for flow in topology["flows"])),
        *_acls(topology),
        *_quotas(topology),
        *_cutovers(topology),
        *_jobs(topology),
        *_policies(topology),
        *_drill(topology),
    ]


def _clusters(topology: ParsedRecord) -> Iterable[Diagnostic]:
    for name, cluster in topology["clusters"].items():
        if not isinstance(cluster, ParsedRecord):
            continue
        for text in cluster.get("bootstrap") or ():
            for address in text.split(","):
                if not 1 <= int(address.rpartition(":")[2]) <= 65_535:
                    what = f'"{address.strip()}" has no port that can exist'
                    yield cluster.error("bootstrap", what, "ports go from 1 to 65535")
        for key, value in (cluster.get("client") or {}).items():
            if not isinstance(value, str):
                continue
            if looks_secret(key):
                yield warning(
                    f'"{key}" of cluster {name} stands in the topology as plain text',
                    f"refer to it: {key}: {{env: VARIABLE}} or {{file: path}}",
                    source=cluster.place("client"),
                    code="literal-secret",
                )
            if key == "security.protocol" and value.upper() not in SecurityProtocol.__members__:
                what = (
                    f'"{key}" of cluster {name} is "{value}", none of {prose(SecurityProtocol.__members__)}'
                )
                hint = did_you_mean(value.upper(), SecurityProtocol.__members__)
                yield cluster.error("client", what, hint or "write one of them")
            if key == TOKEN_ENDPOINT_URL and (problem := token_endpoint_problem(value, os.environ)):
                what = f'"{key}" of cluster {name} {problem[0]}'
                yield cluster.error("client", what, problem[1], code="token-endpoint")


def _registries(topology: ParsedRecord) -> Iterable[Diagnostic]:
    for name, registry in topology["registries"].items():
        if isinstance(registry, ParsedRecord):
            yield from registry_problems(f"registries.{name}", registry)
        if name not in topology["clusters"]:
            yield _unknown(
                "cluster", ScalarNode(name, False, topology.place("registries")), topology["clusters"]
            )
    for flow in topology["flows"]:
        schemas = flow.get("schemas")
        if not isinstance(schemas, ParsedRecord) or not schemas.get("sync"):
            continue
        if (schemas.get("subjects"), schemas.get("ids")) == ("record_name", "translate"):
            yield flow.error(
                "schemas",
                "ids can't be translated where subjects are named by the record: a key that is a number can't"
                " be told from the id of a schema",
                "write ids: keep, or another value of subjects",
            )
        ends = [end.text for key in ("from", "to") if (end := flow.get(key))]
        into = flow.get("to")
        if into is not None and (endpoint := topology["endpoints"].get(into.text)) is not None:
            yield from _schemas_beside_files(flow, schemas, endpoint)
        for cluster in dict.fromkeys(ends):
            if cluster in topology["clusters"] and cluster not in topology["registries"]:
                yield flow.error(
                    "schemas",
                    f"there is no schema registry of {cluster}, which schemas.sync needs",
                    f"declare it under registries: {cluster}: {{url: …}}",
                )


def _schemas_beside_files(
    flow: ParsedRecord, schemas: ParsedRecord, endpoint: object
) -> Iterable[Diagnostic]:
    """Yields what a flow into files can't do: raw files alone hold records with the ids of their schemas."""
    if not isinstance(endpoint, ParsedRecord) or endpoint.get("format") != "raw":
        yield flow.error(
            "schemas",
            "schemas are copied between clusters, or kept beside raw files",
            "leave schemas out, or write into an endpoint with format: raw",
        )
    elif schemas.get("ids") == "translate":
        yield flow.error(
            "schemas",
            "raw files hold records as they are, with the ids of the source",
            "leave ids out: a restore keeps them",
        )


def _cluster_references(topology: ParsedRecord) -> Iterable[Diagnostic]:
    references: list[ScalarNode] = []
    for record in (*topology["topics"], *topology["acls"], *topology["quotas"]):
        named = record.get("cluster") or ()
        references += named
        names = [reference.text for reference in named]
        for at, reference in enumerate(named):
            if reference.text in names[:at]:
                what = f'"{reference.text}" stands in the list twice'
                yield error(what, "name each cluster once", source=reference.source)
    for flow in topology["flows"]:
        ends = [end for key in ("from", "to") if (end := flow.get(key))]
        if is_endpoint("to", flow, topology) and is_endpoint("from", flow, topology):
            what = f'"{ends[0].text}" and "{ends[1].text}" are both file endpoints'
            yield error(what, "name a cluster in from or in to", source=ends[0].source, code=ENDPOINT_CODE)
        references += [end for end in ends if end.text not in topology["endpoints"]]
    for reference in references:
        if reference.text in topology["endpoints"]:
            what = f'"{reference.text}" is a file endpoint'
            yield error(what, "name a cluster", source=reference.source, code=ENDPOINT_CODE)
        elif reference.text not in topology["clusters"]:
            yield _unknown("cluster", reference, topology["clusters"])


def _unknown(kind: str, reference: ScalarNode, declared: Iterable[str]) -> Diagnostic:
    names = sorted(declared)
    hint = did_you_mean(reference.text, names) or (
        f"declare it under {kind}s; there is {prose(names[:10], 'and')}"
        if names
        else f"declare it under {kind}s"
    )
    return error(f'there is no {kind} "{reference.text}"', hint, source=reference.source)


def _duplicates(kind: str, named: Iterable[tuple[str | None, SourceLocation]]) -> Iterable[Diagnostic]:
    first: dict[str, SourceLocation] = {}
    for name, place in named:
        if name is None:
            continue
        if name in first:
            yield error(
                f'the {kind} "{name}" stands in two places, first at {first[name]}', "keep one", source=place
            )
        else:
            first[name] = place


def _topics(topology: ParsedRecord) -> Iterable[Diagnostic]:
    named: dict[tuple[str, str], tuple[str, SourceLocation]] = {}
    for topic in topology["topics"]:
        name = topic.get("name")
        for cluster in topic.get("cluster") or () if name is not None else ():
            first = named.setdefault((cluster.text, metric_name(name)), (name, topic.place("name")))
            if first[1] is topic.place("name"):
                continue
            if first[0] == name:
                what = f'the topic "{name}" at {cluster.text} stands in two places, first at {first[1]}'
                yield topic.error("name", what, "keep one")
            else:
                what = f'"{name}" and "{first[0]}" ({first[1]}) can\'t both be at {cluster.text}'
                yield topic.error("name", what, "Kafka takes . and _ for the same: rename one")


def _flow(flow: ParsedRecord, topology: ParsedRecord) -> Iterable[Diagnostic]:
    source, destination = flow.get("from"), flow.get("to")
    if source and destination and source.text == destination.text:
        what = f'the flow copies "{source.text}" to itself'
        yield error(what, "name another cluster in from or to", source=destination.source)
    yield from check_flow_ends(flow, topology)
    job, home = flow.get("job"), _default_job(flow, topology)
    if job and job.text not in topology["jobs"] and not (home and job.text == home.text):
        yield _unknown("job", job, topology["jobs"])
    if flow.get("reverse_of"):
        yield from _reverse(flow, topology)
    if (
        (renamed := flow.get("rename")) is not None
        and _is_complete(renamed)
        and (why := rename.problem(rename_of(renamed)))
    ):
        yield flow.error("rename", why, "a rename must have a way back")
    if isinstance(transform := flow.get("transform"), ParsedRecord):
        yield from check_transform(transform)
    for key, part in product(("topics", "groups"), ("include", "exclude")):
        selected = flow.get(key)
        for pattern in (selected.get(part) or ()) if isinstance(selected, ParsedRecord) else ():
            if GLOB.fullmatch(pattern):
                what = f'"{pattern}" is a regex: its star repeats the one sign before it'
                hint = f'write "{pattern[:-1]}.*" for every name that begins so'
                yield warning(what, hint, source=selected.place(part), code="glob")


def _is_complete(renamed: object) -> bool:
    """Returns whether all parts of a rename could be read."""
    if isinstance(renamed, ParsedRecord):
        return {"match", "to"} <= renamed.values.keys()
    return not (isinstance(renamed, dict) and INVALID in renamed.values())


def _reverse(flow: ParsedRecord, topology: ParsedRecord) -> Iterable[Diagnostic]:
    reference: ScalarNode = flow["reverse_of"]
    others = {other["name"]: other for other in topology["flows"] if other.get("name")}
    other = others.get(reference.text)
    if other is None:
        yield _unknown("flow", reference, others)
        return
    forward = [end.text if (end := other.get(key)) else None for key in ("from", "to")]
    back = [end.text if (end := flow.get(key)) else None for key in ("to", "from")]
    if None not in forward + back and forward != back:
        what = f'the flow does not reverse "{reference.text}", which goes from {forward[0]} to {forward[1]}'
        yield error(what, f"write from: {forward[1]} and to: {forward[0]}", source=reference.source)


def _acls(topology: ParsedRecord) -> Iterable[Diagnostic]:
    first: dict[AclRule, SourceLocation] = {}
    for acl in topology["acls"]:
        if problem := _incomplete(acl):
            yield error(*problem, source=acl.source)
        read = acl.values.keys()
        if (
            not {"cluster", "principal"} <= read
            or not acl.places.keys() & {"host", "prefixed", "whole_cluster"} <= read
        ):
            continue
        odd: set[tuple[str, str]] = set()
        for binding in built(acl).acls():
            rule = binding.rule
            operations = OPERATIONS[rule.resource_type]
            if rule.operation != "ALL" and rule.operation not in operations:
                odd.add((rule.resource_type, rule.operation))
            if rule in first:
                what = f"the ACL {rule.cluster}.{rule.name} stands in two places, first at {first[rule]}"
                yield error(what, "keep one", source=acl.source)
            first.setdefault(rule, acl.source)
        for kind, operation in sorted(odd):
            what = f"{operation} means nothing for a {kind.lower().replace('_', ' ')}"
            yield warning(
                what, f"Kafka knows ALL, {prose(sorted(OPERATIONS[kind]))}", source=acl.source, code="acl"
            )


def _incomplete(acl: ParsedRecord) -> tuple[str, str] | None:
    if not (acl.get("whole_cluster") or any(key in acl.places for key in RESOURCES)):
        return "an ACL that does not say on what", f"add one of {prose([*RESOURCES, 'whole_cluster'])}"
    if "allow" not in acl.places and "deny" not in acl.places:
        return "an ACL that neither allows nor denies", "add allow: [READ], or deny"
    return None


def _quotas(topology: ParsedRecord) -> Iterable[Diagnostic]:
    first: dict[tuple[str, str], SourceLocation] = {}
    for quota in topology["quotas"]:
        if problem := _unlike_kafka(quota):
            yield error(*problem, source=quota.source)
            continue
        if not quota.places.keys() & set(ENTITY) <= quota.values.keys():
            continue  # a part that could not be read is reported already
        entity = QuotaEntity(*(quota.get(key) for key in ENTITY))
        for cluster in quota.get("cluster") or ():
            place = first.setdefault((cluster.text, entity.name), quota.source)
            if place is not quota.source:
                what = f"the quota of {entity} at {cluster.text} stands in two places, first at {place}"
                yield error(what, "keep one, with the limits of both", source=quota.source)


def _unlike_kafka(quota: ParsedRecord) -> tuple[str, str] | None:
    """Returns why Kafka has no such quota, and the way out; None for one that it has."""
    named = [key for key in ENTITY if key in quota.places]
    if not named:
        return "a quota that does not say whom it limits", f"add one of {prose(ENTITY)}"
    if "ip" in named and len(named) > 1:
        return "a quota of an address together with a user or a client", "make two: Kafka has no such pair"
    able, others = (OF_ADDRESSES, OF_USERS) if "ip" in named else (OF_USERS, OF_ADDRESSES)
    if wrong := [key for key in others if key in quota.places]:
        whose = "address" if "ip" in named else "user or client"
        return f"{prose(wrong, 'and')} limits no {whose}", f"Kafka has {prose(able, 'and')} for it"
    if not any(key in quota.places for key in able):
        return "a quota without a limit", f"add {prose(able)}"
    return None


def _cutovers(topology: ParsedRecord) -> Iterable[Diagnostic]:
    flows = {flow["name"]: flow for flow in topology["flows"] if flow.get("name")}
    yield from _duplicates("cutover", ((cut.get("name"), cut.place("name")) for cut in topology["cutovers"]))
    moved: dict[str, str] = {}
    for cutover in topology["cutovers"]:
        waves = [wave for wave in cutover.get("waves") or () if isinstance(wave, ParsedRecord)]
        yield from _duplicates("wave", ((wave.get("name"), wave.place("name")) for wave in waves))
        references = cutover.get("flows") or ()
        for reference in references:
            flow = flows.get(reference.text)
            if flow is None:
                yield _unknown("flow", reference, flows)
            elif is_endpoint("to", flow, topology) or is_endpoint("from", flow, topology):
                what = f"flow {reference.text} goes into files or comes from files"
                yield error(what, "name flows between two clusters", source=reference.source)
            elif flow.get("reverse_of"):
                what = f"flow {reference.text} is a reverse flow"
                yield error(what, "name the flow that it reverses", source=reference.source)
            elif (other := moved.setdefault(reference.text, cutover.get("name") or "")) != cutover.get(
                "name"
            ):
                what = f"flow {reference.text} is in the cutover {other} too"
                yield error(what, "keep it in one", source=reference.source)
        ends = _ends(references, flows, "from")
        if len(ends) > 1:
            what = f"the flows of the cutover leave {prose(sorted(ends), 'and')}"
            yield cutover.error("flows", what, "make a cutover for each cluster that is left")
        for wave in waves:
            yield from _producers(cutover, wave)
        handed_out = cutover.get("hand_out") or ()
        if handed_out and len(into := _ends(references, flows, "to")) > 1:
            what = (
                f"the flows of the cutover go to {prose(sorted(into), 'and')}: hand_out has one new address"
            )
            yield cutover.error("hand_out", what, "make a cutover for each destination")
        for handed in handed_out:
            yield from _handed_out(handed, [name for wave in waves if (name := wave.get("name"))])


def _ends(references: Iterable[ScalarNode], flows: Mapping[str, ParsedRecord], key: str) -> set[str]:
    """Returns the clusters at one end of the named flows."""
    named = (flows[reference.text] for reference in references if reference.text in flows)
    return {end.text for flow in named if (end := flow.get(key))}


def _handed_out(handed: ParsedRecord, waves: Sequence[str]) -> Iterable[Diagnostic]:
    """Yields an error where a file would be outside of the topology's folder, or be read as its part."""
    if (file := handed.get("file")) is not None:
        paths = [PurePath(file.text.replace("{wave}", wave)) for wave in waves]
        hidden = any(part.startswith(".") for path in paths for part in path.parts)
        if hidden or any(path.is_absolute() or not path.name for path in paths):
            what = f"{file.text} is a dot file, or lies outside of the topology's folder"
            yield error(what, "write a relative path in which no name begins with a dot", source=file.source)
        elif any(is_topology_file(Path(path)) for path in paths):
            what = f"{file.text} would be read as a part of the topology"
            yield error(what, "name it .json: every reader of YAML takes it", source=file.source)
        if len(waves) > 1 and "{wave}" not in file.text:
            what = f"{file.text} is one file, and there are {len(waves)} waves"
            yield error(what, "write {wave} into the path", source=file.source)
    if handed.or_default("format") in GATEWAYS and not handed.get("endpoint"):
        what = "the configuration of a gateway does not say where clients reach it"
        yield error(what, "add endpoint: host:port", source=handed.source)


def _producers(cutover: ParsedRecord, wave: ParsedRecord) -> Iterable[Diagnostic]:
    """Yields an error where the fence of a wave can't stop its producers, because of how they are named."""
    fence, producers = cutover.or_default("fence"), wave.get("producers") or ()
    if fence == Fence.QUOTA and not producers:
        what = f"the wave {wave.get('name')} does not say whom fence: quota limits"
        hint = (
            'name its producers: producers: ["User:app"], or their client ids; Kafka has no quota of a topic'
        )
        yield wave.error("name", what, hint)
    if fence == Fence.QUOTA and EVERYONE in producers:
        what = f'"{EVERYONE}" is no user: a quota of it limits no producer'
        yield wave.error("producers", what, "name each user or client id, or write fence: acl")
    if fence == Fence.ACL:
        for producer in producers:
            if not re.fullmatch(r"[A-Za-z]+:.+", producer):
                what = f'"{producer}" is no principal, and fence: acl denies principals'
                yield wave.error("producers", what, f'write "User:{producer}", or fence: quota')


def _default_job(flow: ParsedRecord, topology: ParsedRecord) -> ScalarNode | None:
    """Returns the cluster or endpoint after which a flow's job is named where the flow names none."""
    end: ScalarNode | None = flow.get("from" if is_endpoint("from", flow, topology) else "to")
    return end


def _jobs(topology: ParsedRecord) -> Iterable[Diagnostic]:
    used = {
        named.text for flow in topology["flows"] if (named := flow.get("job") or _default_job(flow, topology))
    }
    for name, job in topology["jobs"].items():
        if name not in used:
            what = f'no flow runs in the job "{name}"'
            yield warning(
                what,
                did_you_mean(name, used) or "name it in a flow's job",
                code="unused-job",
                source=place_of(job),
            )
        if isinstance(job, ParsedRecord):
            yield from _job(job)
    yield from _metrics_ports(topology)


def _metrics_ports(topology: ParsedRecord) -> Iterable[Diagnostic]:
    """Jobs of the local launcher run on one machine, so each declared address must be there once."""
    first: dict[int, list[tuple[str, str, SourceLocation]]] = {}
    for name, job in topology["jobs"].items():
        if not isinstance(job, ParsedRecord) or job.or_default("launcher") != "local":
            continue
        metrics = job.get("metrics")
        if not isinstance(metrics, ParsedRecord) or (port := metrics.get("port")) is None:
            continue
        host = metrics.get("host") or "127.0.0.1"
        for other, taken, where in first.setdefault(port, []):
            if host == taken or not {host, taken}.isdisjoint(_ALL_ADDRESSES):
                what = f'the jobs "{other}" and "{name}" declare the metrics port {port}, first at {where}'
                hint = "give each job on one machine its own, or declare none: then a free one is taken"
                yield metrics.error("port", what, hint)
                break
        first[port].append((name, host, metrics.place("port")))


def _job(job: ParsedRecord) -> Iterable[Diagnostic]:
    launcher, master = job.or_default("launcher"), job.get("master")
    if launcher and master and not master.startswith(MASTERS[launcher]):
        right = next((name for name, start in MASTERS.items() if master.startswith(start)), launcher)
        what = f'the launcher {launcher} does not take the master "{master}"'
        yield job.error("master", what, f"write launcher: {right}, or a master of {launcher}")
    if launcher in ("standalone", "kubernetes") and "master" not in job.places:
        what = f"the launcher {launcher} needs a master"
        yield job.error("launcher", what, f"add master: {MASTERS[launcher]}host:port")
    if launcher == "kubernetes" and job.get("standby"):
        what = "the launcher kubernetes takes no standby: Kubernetes starts a lost driver on another node"
        yield job.error("standby", what, "remove standby")
    for key, value in (job.get("conf") or {}).items():
        if key == "spark.speculation" and WORDS.get(value.lower()) == "true":
            what = "spark.speculation would run a copying task twice"
            yield job.error("conf", what, "leave it out: every record has one writer")


def _policies(topology: ParsedRecord) -> Iterable[Diagnostic]:
    policies = topology.get("policies")
    for subject, placed in ((policies.get("require") or {}) if policies else {}).items():
        if not isinstance(placed, ScalarNode):
            continue
        text, place = placed.text, placed.source
        if subject not in SUBJECTS and "." not in subject:
            hint = (
                did_you_mean(subject, SUBJECTS)
                or "use partitions, replication or the name of a topic setting"
            )
            yield error(f'nothing is known as "{subject}" that could be required', hint, source=place)
            continue
        try:
            required = requirement(subject, text, place)
            if subject in SUBJECTS:
                scalars.whole(required.value)
        except scalars.NotReadable as not_readable:
            what = f'"{subject}" is required to be "{text}": {not_readable.what}'
            yield error(what, not_readable.hint or 'write it as ">=3"', source=place)

    yield from check_rules((policies.get("rules") or ()) if policies else ())


def check_rules(rules: Iterable[ParsedRecord]) -> Iterable[Diagnostic]:
    """Yields an error for each rule of the wrong form. Its expression is compiled later."""
    yield from _duplicates("rule", ((rule.get("name"), rule.place("name")) for rule in rules))
    for rule in rules:
        if ("deny" in rule.places) == ("warn" in rule.places):
            what = f'the rule "{rule.get("name")}" needs one of deny and warn'
            yield error(
                what, "deny refuses a plan where its expression is true, warn warns", source=rule.source
            )


def _drill(topology: ParsedRecord) -> Iterable[Diagnostic]:
    drill = topology.get("drill")
    for name in (drill.get("versions") or {}) if drill else ():
        if name not in topology["clusters"]:
            yield _unknown("cluster", ScalarNode(name, False, drill.place("versions")), topology["clusters"])


def check_not_empty(topology: ParsedRecord) -> Iterable[Diagnostic]:
    """Reports a topology that declares nothing: it is an error, and never means "delete everything"."""
    declaring = ("topics", "flows", "acls", "quotas")
    if any(key in topology.places and topology.get(key) != () for key in declaring):
        return
    yield error(
        "the topology declares no topic, no flow, no ACL and no quota",
        "add one; to give up everything it owns use `repl destroy`",
        source=topology.source,
    )
