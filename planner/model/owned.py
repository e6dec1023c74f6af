"""What the registry at a cluster says: which objects which topology owns, as last applied."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.model.address import Address
from planner.model.topology import OnRemove

CONFIG = "config."
BEFORE = "before."  # of a setting that is lifted for the time of a failback
ID = "id"
MIRRORED = "mirrored"  # the settings of a declared topic that a flow gave it, with commas
DECLARED = "declared"  # the origin of what stands in the YAML; a mirror's is flow.<name>


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """One entry. `spec` is what was applied (configs, partitions, …); protection is remembered here."""

    address: Address
    topology: str
    spec: Mapping[str, str] = field(default_factory=dict)
    protect: bool = False
    on_remove: OnRemove = OnRemove.KEEP
    origin: str = DECLARED
    created: bool = False  # made by us, not adopted
    plan: str = ""  # digest of the plan that wrote it
    at_ms: int = 0

    @property
    def config(self) -> dict[str, str]:
        """The settings that were applied: in `spec` they stand as `config.<key>`."""
        return {key.removeprefix(CONFIG): value for key, value in self.spec.items() if key.startswith(CONFIG)}

    @property
    def mirrored(self) -> frozenset[str] | None:
        """The settings of a declared topic that a flow gave it. None where the entry does not tell."""
        listed = self.spec.get(MIRRORED)
        return None if listed is None else frozenset(filter(None, listed.split(","))) & self.config.keys()

    @property
    def before(self) -> dict[str, str]:
        """The values to restore after a failback, by setting; "" where the topic had none of its own."""
        return {key.removeprefix(BEFORE): value for key, value in self.spec.items() if key.startswith(BEFORE)}

    def is_another(self, topic_id: str) -> bool:
        """Whether the topic that has the name now is not the one that was applied.

        Without an id of both, nothing tells: Kafka before 2.8 gives topics none.
        """
        applied = self.spec.get(ID, "")
        return bool(applied and topic_id) and applied != topic_id
