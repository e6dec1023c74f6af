"""Lints of connections: credentials in clear text, and certificates that are not checked."""

from collections.abc import Iterator

from planner.model.diagnostic import Diagnostic, warning
from planner.model.topology import Cluster, Setting, Topology
from runtime.contract.client.values import ClientSettingsError, parse_bootstrap

CLEAR_TEXT = "credentials-in-clear-text"
UNCHECKED = "certificate-not-checked"

_FALSE = frozenset({"false", "f", "0"})
_LOOPBACK = ("localhost", "::1")


def security(topology: Topology) -> Iterator[Diagnostic]:
    """Yields warnings for every cluster that is not on this machine."""
    for name in sorted(topology.clusters):
        cluster = topology.clusters[name]
        if not _on_this_machine(cluster):
            yield from _clear_text(cluster)
            yield from _unchecked(cluster)


def _clear_text(cluster: Cluster) -> Iterator[Diagnostic]:
    if _text(cluster.client.get("security.protocol")) != "SASL_PLAINTEXT":
        return
    mechanism = _text(cluster.client.get("sasl.mechanism") or cluster.client.get("sasl.mechanisms"))
    what = {
        "PLAIN": "the password of sasl.mechanism PLAIN",
        "OAUTHBEARER": "the token of sasl.mechanism OAUTHBEARER",
    }.get(mechanism, f"the login of sasl.mechanism {mechanism or 'GSSAPI'}")
    yield warning(
        f"{what} goes to cluster {cluster.name} in clear text: anything on the network path can read it",
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
