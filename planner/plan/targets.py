"""`--target`: selects the changes of the named objects and of everything that they need."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from planner.diff.record import JOB, SOURCE_CLUSTER, SOURCE_TOPIC, flow_of
from planner.model.address import Address, Kind, flow_address, job_address, topic_address
from planner.model.desired import Desired, MirroredBy
from planner.model.diagnostic import Diagnostic, error, note
from planner.model.observed import RegistryEntry
from planner.model.plan import Change
from planner.model.topology import Topology


def select(
    changes: Sequence[Change],
    targets: Sequence[str],
    desired: Desired,
    owned: Mapping[Address, RegistryEntry],
    topology: Topology,
) -> tuple[tuple[Change, ...], tuple[Diagnostic, ...]]:
    """Returns the targeted changes, with a note that the plan is partial; all of them without targets."""
    if not targets:
        return tuple(changes), ()
    needs = _needs(desired, owned, topology, changes)
    known = {change.address for change in changes} | needs.keys()
    problems: list[Diagnostic] = []
    wanted: set[Address] = set()
    for text in targets:
        try:
            address = Address.parse(text)
        except ValueError as wrong:
            problems.append(error(str(wrong), "see the addresses in the plan", code="target"))
            continue
        if address in known:
            wanted |= _with_needs(address, needs)
        else:
            problems.append(_no_such(text, known))
    kept = tuple(change for change in changes if change.address in wanted)
    if not problems:
        left_out = len(changes) - len(kept)
        names = ", ".join(sorted(targets))
        summary = f"the plan is partial: {names} and what that needs; {left_out} other objects were left out"
        problems.append(note(summary, "plan without --target to see everything", code="partial"))
    return kept, tuple(problems)


def _no_such(text: str, known: Iterable[Address]) -> Diagnostic:
    near = get_close_matches(text, [str(address) for address in known], n=1)
    way_out = f"did you mean {near[0]}?" if near else "see the addresses in a plan without --target"
    return error(f"--target {text} names nothing in this topology", way_out, code="target")


def _with_needs(address: Address, needs: Mapping[Address, frozenset[Address]]) -> set[Address]:
    found: set[Address] = set()
    waiting = [address]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(needs.get(one, ()))
    return found


def _needs(
    desired: Desired, owned: Mapping[Address, RegistryEntry], topology: Topology, changes: Iterable[Change]
) -> dict[Address, frozenset[Address]]:
    """Returns what each object needs.

    A job and its flows need each other, since they share one spec. A flow also needs the job that it leaves,
    its mirror topics and its ACLs. A mirror topic needs its source if this topology owns it.
    """
    needs: dict[Address, set[Address]] = {flow_address(name): set() for name in topology.flows}
    for topic in desired.topics:
        if isinstance(topic.origin, MirroredBy):
            source = topic_address(topic.origin.source_cluster, topic.origin.source_topic)
            needs.setdefault(flow_address(topic.origin.flow), set()).add(topic.address)
            needs.setdefault(topic.address, set()).add(source)
    for acl in desired.acls:
        if isinstance(acl.origin, MirroredBy):
            needs.setdefault(flow_address(acl.origin.flow), set()).add(acl.address)
    for entry in owned.values():
        flow = flow_of(entry)
        if flow is not None and entry.topology == topology.name:
            needs.setdefault(flow_address(flow), set()).add(entry.address)
        if SOURCE_CLUSTER in entry.spec and entry.address.kind is Kind.TOPIC:
            source = topic_address(entry.spec[SOURCE_CLUSTER], entry.spec.get(SOURCE_TOPIC, ""))
            needs.setdefault(entry.address, set()).add(source)
    for flow_name, one in topology.flows.items():
        needs.setdefault(job_address(one.job), set()).add(flow_address(flow_name))
        needs.setdefault(flow_address(flow_name), set()).add(job_address(one.job))
    for change in changes:
        left = (str(one.old) for one in change.fields if one.path == (JOB,))
        needs.setdefault(change.address, set()).update(job_address(name) for name in left)
    return {address: frozenset(wanted) for address, wanted in needs.items()}
