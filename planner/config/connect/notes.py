"""The keys of a MirrorMaker 2 file, and a note on every key that has no counterpart."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.config.connect.properties import Property
from planner.model.topology import Topology


@dataclass(frozen=True, slots=True)
class ConversionNote:
    """A note on one key of the file. `loss` is set if the key has an effect that repl does not have."""

    key: str
    line: int
    reason: str
    loss: bool = True
    file: str = ""


@dataclass(frozen=True, slots=True)
class ConnectWorkers:
    """The Connect workers that run one flow: their group, and the topic that holds their positions.

    Both are at the flow's destination. `alias` is the name of the source cluster in that topic.
    """

    offsets_topic: str
    alias: str
    group: str


@dataclass(frozen=True, slots=True)
class ConvertedTopology:
    """A topology, and a note on each key of the files that has no counterpart or needs a remark.

    `workers` are those of each flow of MirrorMaker 2.
    """

    topology: Topology
    notes: tuple[ConversionNote, ...]
    workers: Mapping[str, ConnectWorkers] = field(default_factory=dict)


@dataclass(slots=True)
class PropertyKeys:
    """The keys of the file, and which of them are converted."""

    by_name: Mapping[str, Property]
    file: str = ""
    notes: list[ConversionNote] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def text(self, *names: str) -> str | None:
        """Returns the first of these keys that is set, and marks all of them as converted."""
        found = None
        for name in names:
            if name in self.by_name:
                self.used.add(name)
                found = self.by_name[name].value.strip() if found is None else found
        return found

    def name_of(self, *names: str) -> str | None:
        return next((name for name in names if name in self.by_name), None)

    def flag(self, default: bool, *names: str) -> bool:
        value = self.text(*names)
        return default if value is None else value.lower() == "true"

    def seconds(self, *names: str) -> int | None:
        """Returns an interval in milliseconds, or None if it is not set or not a number."""
        found = self._number("seconds", names)
        return None if found is None else found * 1000

    def milliseconds(self, *names: str) -> int | None:
        return self._number("milliseconds", names)

    def number(self, *names: str) -> int | None:
        return self._number("", names)

    def _number(self, unit: str, names: tuple[str, ...]) -> int | None:
        value = self.text(*names)
        if value is None:
            return None
        if not value.isdecimal():
            self.note(
                self.name_of(*names) or names[0],
                f"{value!r} is no number of {unit}" if unit else f"{value!r} is no number",
            )
            return None
        return int(value)

    def listed(self, *names: str) -> tuple[str, ...] | None:
        value = self.text(*names)
        if value is None:
            return None
        return tuple(part.strip() for part in value.split(",") if part.strip())

    def note(self, key: str, reason: str, *, loss: bool = True) -> None:
        self.used.add(key)
        line = self.by_name[key].line if key in self.by_name else 0
        one = ConversionNote(key, line, reason, loss, self.file)
        if one not in self.notes:
            self.notes.append(one)

    def rest(self) -> list[Property]:
        """Returns the keys that are not converted."""
        return [one for name, one in self.by_name.items() if name not in self.used]


@dataclass(frozen=True, slots=True)
class FlowPropertyKeys:
    """The keys of one flow: its own (`A->B.topics`) come before those of all flows (`topics`)."""

    keys: PropertyKeys
    prefix: str

    def _names(self, settings: tuple[str, ...]) -> tuple[str, ...]:
        return (*(f"{self.prefix}{one}" for one in settings), *settings)

    def text(self, *settings: str) -> str | None:
        return self.keys.text(*self._names(settings))

    def flag(self, default: bool, *settings: str) -> bool:
        return self.keys.flag(default, *self._names(settings))

    def seconds(self, *settings: str) -> int | None:
        return self.keys.seconds(*self._names(settings))

    def listed(self, *settings: str) -> tuple[str, ...] | None:
        return self.keys.listed(*self._names(settings))

    def note(self, settings: tuple[str, ...], reason: str) -> None:
        """Adds a note on the first of these settings that the file has."""
        self.keys.note(self.keys.name_of(*self._names(settings)) or settings[0], reason)
