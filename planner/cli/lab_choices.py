"""The flags of repl lab up → what each cluster shall be."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runtime.lab.cluster import LabKafkaCluster
from runtime.lab.errors import LabError
from runtime.lab.spec import LabClusterSpec, Security, default_ports

DEFAULT_CLUSTERS = ("dc1", "dc2")


def specs(
    existing: Mapping[str, LabKafkaCluster],
    *,
    clusters: str | None,
    brokers: int | None,
    security: str | None,
    ports: str,
    settings: Sequence[str],
    users: Sequence[str],
    version: str | None = None,
) -> list[LabClusterSpec]:
    """A cluster that exists keeps what no flag speaks of; a new one gets the defaults."""
    names = _names(clusters) or tuple(existing) or DEFAULT_CLUSTERS
    chosen: dict[str, Any] = {}
    if brokers is not None:
        chosen["brokers"] = brokers
    if security is not None:
        chosen["security"] = Security(security)
    if users:
        chosen["users"] = tuple(dict.fromkeys(users))
    properties = _properties(settings, names)
    versions = _versions(version, names)
    free = iter(default_ports(one.spec.port for one in existing.values() if one.spec.port))

    def spec(name: str) -> LabClusterSpec:
        own = chosen | ({"properties": properties[name]} if properties[name] else {})
        if name in versions:
            own["version"] = versions[name]
        if name in existing:
            return replace(existing[name].spec, **own)
        return LabClusterSpec(name, port=None if ports == "auto" else _next(free), **own)

    return [spec(name) for name in names]


def _names(clusters: str | None) -> tuple[str, ...]:
    if clusters is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in clusters.split(",") if name.strip()))
    if not names:
        raise LabError("--clusters names no cluster", "for example --clusters dc1,dc2")
    return names


def _versions(version: str | None, names: Sequence[str]) -> dict[str, str]:
    """Returns the version of each cluster that --version names."""
    if version is None:
        return {}
    if "=" not in version:
        return dict.fromkeys(names, version.strip())
    found: dict[str, str] = {}
    for part in version.split(","):
        cluster, equals, chosen = (word.strip() for word in part.partition("="))
        if not equals or cluster not in names:
            raise LabError(
                f"--version {part.strip()} names none of these clusters",
                f"they are {', '.join(names)}: for example --version {names[0]}=2.8.2",
            )
        found[cluster] = chosen
    return found


def _next(free: Any) -> int:
    port = next(free, None)
    if port is None:
        raise LabError("there are no more fixed ports for another cluster", "use --ports auto")
    return int(port)


def _properties(settings: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    for setting in settings:
        key, equals, value = setting.partition("=")
        cluster, colon, key_of_one = key.partition(":")
        if not equals or not key:
            raise LabError(f"--set {setting} is not KEY=VALUE", "for example --set num.partitions=6")
        if colon and cluster not in found:
            raise LabError(
                f"--set {setting} is for {cluster!r}, which is none of these clusters",
                f"they are {', '.join(names)}",
            )
        for name in (cluster,) if colon else names:
            found[name][key_of_one if colon else key] = value
    return found
