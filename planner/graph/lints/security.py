"""Lints of connections: settings that no client can apply or that none uses, and what is not safe."""

from collections.abc import Iterator
from contextlib import suppress

from planner.model.diagnostic import Diagnostic, error, note, warning
from planner.model.topology import Cluster, FileEndpoint, Topology
from runtime.contract.client.settings import (
    ClientSettingsError,
    WireSettings,
    parse_bootstrap,
    wire_settings,
)
from runtime.contract.client.stores import Setting, host_of, store_address

CLEAR_TEXT = "credentials-in-clear-text"
UNCHECKED = "certificate-not-checked"
NOT_USED = "client-setting-not-used"
REFUSED = "client-setting-refused"
NO_LOGIN = "login-not-used"

_FALSE = frozenset({"false", "f", "0"})
_LOOPBACK = ("localhost", "::1")


def security(topology: Topology) -> Iterator[Diagnostic]:
    """Yields warnings for every cluster and every object store that is not on this machine."""
    for name in sorted(topology.clusters):
        cluster = topology.clusters[name]
        if not _on_this_machine(cluster):
            yield from _clear_text(cluster)
            yield from _unchecked(cluster)
    for _, endpoint in sorted(topology.endpoints.items()):
        yield from _store_in_clear_text(endpoint)
    flows = topology.flows.values()
    for name in sorted(
        {flow.source_cluster for flow in flows} | {flow.destination_cluster for flow in flows}
    ):
        if (cluster_of_flows := topology.clusters.get(name)) is not None:
            yield from _not_used(cluster_of_flows)


def logins(topology: Topology) -> Iterator[Diagnostic]:
    """Yields an error for each cluster whose settings no client takes, and a warning for an unused login."""
    for _, cluster in sorted(topology.clusters.items()):
        refused = _refused(cluster)
        if refused is not None:
            yield error(
                f"client of cluster {cluster.name}: {refused.key}: {refused.why}",
                refused.hint or f"correct {refused.key} under client",
                source=cluster.source,
                code=REFUSED,
            )
        elif unused := _unused_login(cluster):
            protocol = cluster.client.get("security.protocol", "PLAINTEXT, as by default")
            yield warning(
                f"client of cluster {cluster.name}: nothing logs in by {', '.join(unused)}, because"
                f" security.protocol is {protocol}",
                f"write security.protocol: SASL_SSL or SASL_PLAINTEXT, or remove {', '.join(unused)}",
                source=cluster.source,
                code=NO_LOGIN,
            )


def _refused(cluster: Cluster) -> ClientSettingsError | None:
    """Returns why no client takes the settings of a cluster; None where one may.

    What a reference stands for is not known here, so none is an error. `parse_bootstrap` has its own one.
    """
    references = {key for key, value in cluster.client.items() if not isinstance(value, str)}
    applied = _applied(cluster)
    if isinstance(applied, WireSettings) or references & {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
    }:
        return None
    return None if applied.key in {*references, "bootstrap.servers"} else applied


def _unused_login(cluster: Cluster) -> list[str]:
    """Returns the settings of a login where `security.protocol` has none; none where it is a reference."""
    protocol = cluster.client.get("security.protocol", "PLAINTEXT")
    if not isinstance(protocol, str) or protocol.upper().startswith("SASL_"):
        return []
    return sorted(key for key in cluster.client if key.startswith("sasl."))


def _applied(cluster: Cluster) -> WireSettings | ClientSettingsError:
    """Returns the settings of a cluster as its clients apply them, or why none can.

    Any text stands for a reference, which is not resolved here. A token command may be set where jobs run.
    """
    given = {key: value if isinstance(value, str) else "name=value" for key, value in cluster.client.items()}
    with suppress(ClientSettingsError):
        return wire_settings(cluster.bootstrap, given)
    try:
        return wire_settings(cluster.bootstrap, given, "any")
    except ClientSettingsError as refused:
        return refused


def _not_used(cluster: Cluster) -> Iterator[Diagnostic]:
    """Yields a note on the settings that the jobs' client does not use."""
    applied, unused = _applied(cluster), _unused_login(cluster)
    if isinstance(applied, ClientSettingsError):
        return  # `logins` reports it
    if notes := [text for text in applied.notes if text.partition(" ")[0] not in unused]:
        yield note(
            f"client of cluster {cluster.name}: {'; '.join(notes)}",
            "nothing is wrong: jobs read and write without them",
            source=cluster.source,
            code=NOT_USED,
        )


def _store_in_clear_text(endpoint: FileEndpoint) -> Iterator[Diagnostic]:
    """Yields a warning where the requests to an object store have no TLS.

    The secret keys of S3 and the account keys of Azure only sign requests; tokens travel as they are.
    """
    if not endpoint.in_store:
        return
    at = host_of(endpoint.folder, endpoint.client)
    if not at.tls and not at.on_this_machine:
        yield warning(
            f"records, and {store_address(endpoint.folder).kind.reusable}, go to the object store of endpoint"
            f" {endpoint.name} in clear text: anything on the network path can read them, and use the token",
            "write https:// in client.endpoint",
            source=endpoint.source,
            code=CLEAR_TEXT,
        )


def _clear_text(cluster: Cluster) -> Iterator[Diagnostic]:
    if _text(cluster.client.get("security.protocol")) != "SASL_PLAINTEXT":
        return
    name = cluster.client.get("sasl.mechanism") or cluster.client.get("sasl.mechanisms")
    mechanism = _text(name) or "GSSAPI"
    way = f"of sasl.mechanism {mechanism} goes to cluster {cluster.name} in clear text: anything on its way"
    yield warning(
        {
            "PLAIN": f"the password {way} can read it",
            "OAUTHBEARER": f"the token {way} can read it",
            "AWS_MSK_IAM": f"the token {way} can read it",
            "GSSAPI": f"what follows the login {way} can read records and change requests",
        }.get(mechanism, f"the login {way} can record it, and guess the password from it"),
        "use security.protocol: SASL_SSL, and a TLS listener of the brokers",
        source=cluster.source,
        code=CLEAR_TEXT,
    )


def _unchecked(cluster: Cluster) -> Iterator[Diagnostic]:
    if _text(cluster.client.get("security.protocol")) not in ("SSL", "SASL_SSL"):
        return
    off = []
    if _text(cluster.client.get("enable.ssl.certificate.verification")).lower() in _FALSE:
        off.append("enable.ssl.certificate.verification: false")
    if _text(cluster.client.get("ssl.endpoint.identification.algorithm")) == "NONE":
        off.append("ssl.endpoint.identification.algorithm: none")
    if off:
        yield warning(
            f"{' and '.join(off)}: any machine on the network path can impersonate a broker of cluster"
            f" {cluster.name}",
            "remove it, and name the authority of the brokers' certificates in ssl.ca.location",
            source=cluster.source,
            code=UNCHECKED,
        )


def _text(value: Setting | None) -> str:
    return value.upper() if isinstance(value, str) else ""


def _on_this_machine(cluster: Cluster) -> bool:
    """Returns whether all bootstrap addresses are local, as with a lab."""
    try:
        brokers = parse_bootstrap(cluster.bootstrap)
    except ClientSettingsError:
        return False
    return all(host.lower() in _LOOPBACK or host.startswith("127.") for host, _ in brokers)
