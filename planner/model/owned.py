"""Registry entries: which topology owns which object at a cluster, as last applied."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from planner.model.address import Address
from planner.model.topology import AclRule, OnRemove
from runtime.contract.spec.acls import PROTECTION

CONFIG = "config."
BEFORE = "before."  # the value before a failback lifted the setting
ID = "id"
MIRRORED = "mirrored"  # the settings of a declared topic that a flow set, separated by commas
REPLACED = "replaced"  # a rule that `protect: acl` has taken away, to be restored
DECLARED = "declared"  # the origin of a declared object; a mirror's is flow.<name>


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """One entry. `spec` is what was applied (configs, partitions, …). It also remembers the protection."""

    address: Address
    topology: str
    spec: Mapping[str, str] = field(default_factory=dict)
    protect: bool = False
    on_remove: OnRemove = OnRemove.KEEP
    origin: str = DECLARED
    created: bool = False  # created by this topology, not adopted
    plan: str = ""  # digest of the plan that wrote it
    at_ms: int = 0

    @property
    def config(self) -> dict[str, str]:
        """Returns the applied settings; `spec` has them as `config.<key>`."""
        return {key.removeprefix(CONFIG): value for key, value in self.spec.items() if key.startswith(CONFIG)}

    @property
    def mirrored(self) -> frozenset[str] | None:
        """Returns the settings of a declared topic that a flow set; None if the entry does not list them."""
        listed = self.spec.get(MIRRORED)
        return None if listed is None else frozenset(filter(None, listed.split(","))) & self.config.keys()

    @property
    def before(self) -> dict[str, str]:
        """Returns the values to restore after a failback, by setting; "" if the topic had none of its own."""
        return {key.removeprefix(BEFORE): value for key, value in self.spec.items() if key.startswith(BEFORE)}

    def is_another(self, topic_id: str) -> bool:
        """Returns whether the topic was recreated: its id is not the applied one.

        Without both ids this is not known: Kafka before 2.8 gives topics none.
        """
        applied = self.spec.get(ID, "")
        return bool(applied and topic_id) and applied != topic_id

    @property
    def is_protection(self) -> bool:
        """Returns whether the entry is of a rule that `protect: acl` made or replaced."""
        return self.origin.startswith(PROTECTION)

    @property
    def is_replaced(self) -> bool:
        """Returns whether the entry is of a rule that `protect: acl` has taken away."""
        return REPLACED in self.spec


def acl_spec(rule: AclRule) -> dict[str, str]:
    return {key: str(value) for key, value in asdict(rule).items() if key != "cluster"}


def acl_rule(cluster: str, spec: Mapping[str, str]) -> AclRule | None:
    """Returns the recorded rule; None where a newer release wrote the entry."""
    wanted = {one.name for one in fields(AclRule)} - {"cluster"}
    if not wanted <= spec.keys():
        return None
    return AclRule(cluster=cluster, **{key: spec[key] for key in wanted})  # type: ignore[arg-type]
