"""Addresses: how a plan, an error and `--target` name one object."""

from enum import StrEnum


class Kind(StrEnum):
    TOPIC = "topic"
    ACL = "acl"
    QUOTA = "quota"
    SCHEMA = "schema"
    FLOW = "flow"
    JOB = "job"
    GROUP = "group"


IN_A_CLUSTER = frozenset({Kind.TOPIC, Kind.ACL, Kind.QUOTA, Kind.SCHEMA, Kind.GROUP})


class Address(str):
    """The address of one object, as people write it.

    The forms are `topic.<cluster>.<name>`, `acl.<cluster>.<…>`, `quota.<cluster>.<…>`,
    `schema.<cluster>.<subject>`, `flow.<name>`, `job.<name>` and `group.<cluster>.<name>`. A cluster's name
    has no dot, so the rest of the text is the name, dots included.
    """

    __slots__ = ("cluster", "kind", "name")
    kind: Kind
    cluster: str | None
    name: str

    def __new__(cls, kind: Kind, cluster: str | None, name: str) -> "Address":
        text = f"{kind.value}.{name}" if cluster is None else f"{kind.value}.{cluster}.{name}"
        address = super().__new__(cls, text)
        address.kind, address.cluster, address.name = kind, cluster, name
        return address

    def __lt__(self, other: str) -> bool:
        """Orders addresses by kind, cluster and name: the text alone puts `dc1-a` before `dc1`."""
        if not isinstance(other, Address):
            return super().__lt__(other)
        order = self.kind.value, self.cluster or "", self.name
        return order < (other.kind.value, other.cluster or "", other.name)

    def __getnewargs__(self) -> tuple[Kind, str | None, str]:  # type: ignore[override]  # what __new__ takes
        return self.kind, self.cluster, self.name

    @staticmethod
    def parse(text: str) -> "Address":
        """Returns the address that a user wrote. Raises ValueError with the reason if it is none."""
        kind_text, _, rest = text.partition(".")
        try:
            kind = Kind(kind_text)
        except ValueError:
            kinds = ", ".join(kind.value for kind in Kind)
            raise ValueError(f"{text!r} is no address: it begins with one of {kinds}") from None
        if kind not in IN_A_CLUSTER:
            if not rest:
                raise ValueError(f"{text!r} is no address: write {kind.value}.<name>")
            return Address(kind, None, rest)
        cluster, _, name = rest.partition(".")
        if not cluster or not name:
            raise ValueError(f"{text!r} is no address: write {kind.value}.<cluster>.<name>")
        return Address(kind, cluster, name)


def topic_address(cluster: str, name: str) -> Address:
    return Address(Kind.TOPIC, cluster, name)


def schema_address(cluster: str, subject: str) -> Address:
    return Address(Kind.SCHEMA, cluster, subject)


def flow_address(name: str) -> Address:
    return Address(Kind.FLOW, None, name)


def job_address(name: str) -> Address:
    return Address(Kind.JOB, None, name)


def group_address(cluster: str, name: str) -> Address:
    return Address(Kind.GROUP, cluster, name)
