"""Edge, read-only: lets the brokers check what a plan does to topics and quotas (validate_only).

What a broker refuses (by its policies, unknown keys, impossible numbers) is an error of the plan at the
address. So is what changed between reading and checking; its own code makes the planner read again. If the
caller may read and not alter, that is a warning: another principal may apply.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from planner.graph.messages import few
from planner.kafka.changes import change_request, refusals_of
from planner.kafka.client import ClusterClient, for_each
from planner.kafka.failures import ClusterFailure, RequestRefused
from planner.model.diagnostic import Diagnostic, error, warning
from planner.model.setting_types import TOPIC_SETTINGS
from planner.model.step import Step
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.kafka.errors import ErrorCode

RECORDS_A_REQUEST = 9_000  # metadata records; brokers refuse a request that makes more than 10,000
BROKER_OUTDATED = "broker-outdated"
MAY_NOT = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)
_UNKNOWN_SETTING = re.compile(r"Unknown topic config name: (\S+)")

Refusal = tuple[Step, ClusterFailure]


async def verify_on_broker(
    steps: Iterable[Step], endpoints: Mapping[str, ClusterEndpoint], timeout_s: float
) -> tuple[Diagnostic, ...]:
    """Returns what the brokers object to in these steps. All clusters are asked at once."""
    checkable: dict[str, list[Step]] = {}
    for step in steps:
        if step.checked and step.cluster in endpoints:
            checkable.setdefault(step.cluster, []).append(step)
    refusals = await for_each(
        {name: _check(endpoints[name], wanted, timeout_s) for name, wanted in sorted(checkable.items())}
    )
    return diagnostics(refusals)


async def _check(endpoint: ClusterEndpoint, steps: Sequence[Step], timeout_s: float) -> list[Refusal]:
    """Returns the refused steps. A broker that does not answer is reported once for a request."""
    refused: list[Refusal] = []
    try:
        client = ClusterClient(endpoint, timeout_s)
    except ClusterFailure as failure:
        return [(steps[0], failure)]
    async with client:
        for batch in batches(steps):
            request = change_request(batch, int(timeout_s * 1000), validate_only=True)
            try:
                found = refusals_of(batch, await client.ask_controller(request))
            except ClusterFailure as failure:
                refused.append((batch[0], failure))
                continue
            refused += ((step, found[step.id]) for step in batch if step.id in found)
    return refused


def batches(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yields batches of one kind of step, none larger than a broker accepts."""
    for _, alike in groupby(sorted(steps, key=lambda step: (type(step).__name__, step.id)), key=type):
        batch: list[Step] = []
        records = 0
        for step in alike:
            if batch and records + step.metadata_records > RECORDS_A_REQUEST:
                yield batch
                batch, records = [], 0
            batch.append(step)
            records += step.metadata_records
        yield batch


def diagnostics(refusals: Mapping[str, Sequence[Refusal]]) -> tuple[Diagnostic, ...]:
    """Turns refusals into errors of the plan, and unchecked steps into warnings."""
    kinds = {cluster: _sorted(refused) for cluster, refused in refusals.items()}
    return (
        *_unknown_settings(kinds),
        *(one for cluster, some in kinds.items() for one in _of_cluster(cluster, some)),
    )


class _Sorted(Struct, frozen=True):
    """The refusals of one cluster by kind. `unknown`: by the name of a setting that its brokers
    do not know.
    """

    unknown: dict[str, list[Refusal]]
    outdated: list[Refusal]
    refused: list[Refusal]
    not_allowed: list[Refusal]
    not_asked: list[Refusal]


def _unknown_settings(refusals: Mapping[str, _Sorted]) -> Iterator[Diagnostic]:
    """Yields one error for each unknown setting. A mirror takes its source's settings, so many topics may
    share it.
    """
    for key in sorted({key for kinds in refusals.values() for key in kinds.unknown}):
        found = {cluster: kinds.unknown[key] for cluster, kinds in refusals.items() if key in kinds.unknown}
        addresses = [str(step.address) for refused in found.values() for step, _ in refused]
        near = difflib.get_close_matches(key.lower(), TOPIC_SETTINGS, n=1)
        yield error(
            f'{few(sorted(found))}: there is no topic setting "{key}" ({few(addresses)})',
            f'did you mean "{near[0]}"?' if near else "declare settings that the brokers know",
            address=addresses[0],
            code="broker-refusal",
        )


def _of_cluster(cluster: str, kinds: _Sorted) -> Iterator[Diagnostic]:
    for step, failure in kinds.outdated:
        yield error(
            f"the controller of {cluster} knows another state than its brokers returned: {failure.why}",
            "plan again; if this repeats, the brokers do not receive metadata changes: see their logs",
            address=str(step.address),
            code=BROKER_OUTDATED,
        )
    for step, failure in kinds.refused:
        yield error(
            f"{cluster} refuses it: {failure.why}",
            "declare what the brokers allow, or ask their operators",
            address=str(step.address),
            code="broker-refusal",
        )
    if kinds.not_allowed:
        addresses = [str(step.address) for step, _ in kinds.not_allowed]
        yield warning(
            f"{few(addresses)}: not checked on the broker, "
            f"because this principal has no right to alter them ({kinds.not_allowed[0][1].why})",
            "plan with the principal that applies, to have them checked",
            code="broker-check",
        )
    if kinds.not_asked:
        yield warning(
            f"{cluster} did not check the plan: {kinds.not_asked[0][1].why}",
            "plan again when it answers",
            code="broker-check",
        )


def _sorted(refusals: Sequence[Refusal]) -> _Sorted:
    kinds = _Sorted({}, [], [], [], [])
    for refusal in refusals:
        step, failure = refusal
        if not isinstance(failure, RequestRefused) or failure.transient:
            kinds.not_asked.append(refusal)
        elif failure.code in MAY_NOT:
            kinds.not_allowed.append(refusal)
        elif unknown := _UNKNOWN_SETTING.search(failure.why):
            kinds.unknown.setdefault(unknown[1], []).append(refusal)
        elif failure.code.name == step.outdated:
            kinds.outdated.append(refusal)
        else:
            kinds.refused.append(refusal)
    return kinds
