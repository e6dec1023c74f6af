"""Edge, read-only: lets the brokers check what a plan does to topics and quotas (validate_only).

What a broker refuses (by its policies, unknown keys, impossible numbers) is an error of the plan at the
address. So is what changed between reading and checking; its own code makes the planner read again. If the
caller may read and not alter, that is a warning: another principal may apply.
"""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.graph.messages import few
from planner.kafka.changes import ACCEPTED_RECORDS, batches, change_request, refusals_of
from planner.kafka.client import ClusterClient, for_each
from planner.kafka.failures import ClusterFailure, RequestRefused
from planner.model.diagnostic import Diagnostic, error, warning
from planner.model.setting_types import TOPIC_SETTINGS
from planner.model.step import Step
from runtime.contract.client.endpoint import ClusterEndpoint
from runtime.kafka.errors import ErrorCode

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
        for batch in batches(steps, len(steps), ACCEPTED_RECORDS):
            request = change_request(batch, int(timeout_s * 1000), validate_only=True)
            try:
                refusals = refusals_of(batch, await client.ask_controller(request))
            except ClusterFailure as failure:
                refused.append((batch[0], failure))
                continue
            refused += ((step, refusals[step.id]) for step in batch if step.id in refusals)
    return refused


def diagnostics(refusals: Mapping[str, Sequence[Refusal]]) -> tuple[Diagnostic, ...]:
    """Turns refusals into errors of the plan, and unchecked steps into warnings."""
    unknown: dict[str, dict[str, list[Step]]] = {}  # by the name of a setting that brokers do not know
    others: list[Diagnostic] = []
    for cluster, refused in refusals.items():
        kinds: dict[str, list[Refusal]] = defaultdict(list)
        for step, failure in refused:
            if not isinstance(failure, RequestRefused) or failure.transient:
                kinds["not asked"].append((step, failure))
            elif failure.code in MAY_NOT:
                kinds["not allowed"].append((step, failure))
            elif setting := _UNKNOWN_SETTING.search(failure.why):
                unknown.setdefault(setting[1], {}).setdefault(cluster, []).append(step)
            elif failure.code.name == step.outdated:
                kinds["outdated"].append((step, failure))
            else:
                kinds["refused"].append((step, failure))
        others += _of_cluster(cluster, kinds)
    return (*_unknown_settings(unknown), *others)


def _unknown_settings(unknown: Mapping[str, Mapping[str, Sequence[Step]]]) -> Iterator[Diagnostic]:
    """Yields one error for each unknown setting. A mirror takes its source's settings, so many topics may
    share it.
    """
    for key, of_cluster in sorted(unknown.items()):
        addresses = [str(step.address) for steps in of_cluster.values() for step in steps]
        near = difflib.get_close_matches(key.lower(), TOPIC_SETTINGS, n=1)
        yield error(
            f'{few(sorted(of_cluster))}: there is no topic setting "{key}" ({few(addresses)})',
            f'did you mean "{near[0]}"?' if near else "declare settings that the brokers know",
            address=addresses[0],
            code="broker-refusal",
        )


def _of_cluster(cluster: str, kinds: Mapping[str, Sequence[Refusal]]) -> Iterator[Diagnostic]:
    for step, failure in kinds.get("outdated", ()):
        yield error(
            f"the controller of {cluster} knows another state than its brokers returned: {failure.why}",
            "plan again; if this repeats, the brokers do not receive metadata changes: see their logs",
            address=str(step.address),
            code=BROKER_OUTDATED,
        )
    for step, failure in kinds.get("refused", ()):
        yield error(
            f"{cluster} refuses it: {failure.why}",
            "declare what the brokers allow, or ask their operators",
            address=str(step.address),
            code="broker-refusal",
        )
    if not_allowed := kinds.get("not allowed"):
        addresses = [str(step.address) for step, _ in not_allowed]
        yield warning(
            f"{few(addresses)}: not checked on the broker, "
            f"because this principal has no right to alter them ({not_allowed[0][1].why})",
            "plan with the principal that applies, to have them checked",
            code="broker-check",
        )
    if not_asked := kinds.get("not asked"):
        yield warning(
            f"{cluster} did not check the plan: {not_asked[0][1].why}",
            "plan again when it answers",
            code="broker-check",
        )
