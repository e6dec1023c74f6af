"""Checks of ACLs, jobs and policies, and of the topology as a whole."""

from collections.abc import Iterable

from planner.config.hints import did_you_mean, prose
from planner.config.language import scalars
from planner.config.language.build import built, requirement
from planner.config.language.defaults import TopologyParts
from planner.config.language.fields import NamedReference, ParsedRecord
from planner.config.settings import WORDS
from planner.model.diagnostic import Diagnostic, SourceLocation, error, warning
from planner.model.topology import RESOURCES, AclRule

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
SUBJECTS = ("partitions", "replication")
_ALL_ADDRESSES = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound


def check_more(parts: TopologyParts) -> list[Diagnostic]:
    return [*_acls(parts), *_jobs(parts), *_policies(parts)]


def _acls(parts: TopologyParts) -> Iterable[Diagnostic]:
    first: dict[AclRule, SourceLocation] = {}
    for acl in parts.acls:
        if problem := _incomplete(acl):
            yield error(*problem, source=acl.source)
        if not {"cluster", "principal", "host", "prefixed", "whole_cluster"} <= acl.values.keys():
            continue
        odd: set[tuple[str, str]] = set()
        for one in built(acl).acls():
            rule = one.rule
            known = OPERATIONS[rule.resource_type]
            if rule.operation != "ALL" and rule.operation not in known:
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


def _jobs(parts: TopologyParts) -> Iterable[Diagnostic]:
    used = {named.text for flow in parts.flows if (named := flow.get("job") or flow.get("to"))}
    for name, job in parts.jobs.items():
        if name not in used:
            what = f'no flow runs in the job "{name}"'
            yield warning(
                what,
                did_you_mean(name, used) or "name it in a flow's job",
                code="unused_job",
                source=_at(job),
            )
        if isinstance(job, ParsedRecord):
            yield from _job(job)
    yield from _metrics_ports(parts)


def _metrics_ports(parts: TopologyParts) -> Iterable[Diagnostic]:
    """Jobs of the local launcher run on one machine, so each declared address must be there once."""
    first: dict[int, list[tuple[str, str, SourceLocation]]] = {}
    for name, job in parts.jobs.items():
        if not isinstance(job, ParsedRecord) or (job.get("launcher") or "local") != "local":
            continue
        metrics = job.get("metrics")
        if not isinstance(metrics, ParsedRecord) or (port := metrics.get("port")) is None:
            continue
        host = metrics.get("host") or "127.0.0.1"
        for other, taken, where in first.setdefault(port, []):
            if host == taken or not {host, taken}.isdisjoint(_ALL_ADDRESSES):
                what = f'the jobs "{other}" and "{name}" declare the metrics port {port}, first at {where}'
                mend = "give each job on one machine its own, or declare none: then a free one is taken"
                yield error(what, mend, source=metrics.place("port"))
                break
        first[port].append((name, host, metrics.place("port")))


def _job(job: ParsedRecord) -> Iterable[Diagnostic]:
    launcher, master = job.get("launcher"), job.get("master")
    if launcher and master and not master.startswith(MASTERS[launcher]):
        right = next((name for name, start in MASTERS.items() if master.startswith(start)), launcher)
        what = f'the launcher {launcher} does not take the master "{master}"'
        yield error(what, f"write launcher: {right}, or a master of {launcher}", source=job.place("master"))
    if launcher in ("standalone", "kubernetes") and "master" not in job.places:
        what = f"the launcher {launcher} needs a master"
        yield error(what, f"add master: {MASTERS[launcher]}host:port", source=job.place("launcher"))
    for key, value in (job.get("conf") or {}).items():
        if key == "spark.speculation" and WORDS.get(value.lower()) == "true":
            what = "spark.speculation would run a copying task twice"
            yield error(what, "leave it out: every record has one writer", source=job.place("conf"))


def _at(one: object) -> SourceLocation | None:
    return one.source if isinstance(one, ParsedRecord) else None


def _policies(parts: TopologyParts) -> Iterable[Diagnostic]:
    policies = parts.root.get("policies")
    for subject, placed in ((policies.get("require") or {}) if policies else {}).items():
        if not isinstance(placed, NamedReference):
            continue
        text, place = placed.text, placed.source
        if subject not in SUBJECTS and "." not in subject:
            mend = (
                did_you_mean(subject, SUBJECTS)
                or "use partitions, replication or the name of a topic setting"
            )
            yield error(f'nothing is known as "{subject}" that could be required', mend, source=place)
            continue
        try:
            found = requirement(subject, text, place)
            if subject in SUBJECTS:
                scalars.whole(found.value)
        except scalars.NotReadable as not_readable:
            what = f'"{subject}" is required to be "{text}": {not_readable.what}'
            yield error(what, not_readable.mend or 'write it as ">=3"', source=place)


def check_for_anything(parts: TopologyParts) -> Iterable[Diagnostic]:
    """A topology that declares nothing is a mistake, and never "delete everything"."""
    if any(key in parts.root.places and parts.root.get(key) != () for key in ("topics", "flows", "acls")):
        return
    yield error(
        "the topology declares no topic, no flow and no ACL",
        "add one; to give up everything it owns use `repl destroy`",
        source=parts.root.source,
    )
