"""Parses integers, durations, sizes, rates, timestamps, and the values of Kafka's own settings.

An error says how to write the value. A setting of Kafka is text as it is; durations and sizes are the numbers
that Kafka takes.
"""

import re
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType

from planner.config.hints import prose, shown
from planner.config.yaml_tree import ListNode, MapNode, Node, ScalarNode, kind_of
from planner.model.diagnostic import SourceLocation
from planner.model.setting_types import BOOLEANS, NUMBERS
from planner.model.topology import looks_secret
from planner.model.topology.quotas import number
from runtime.contract.client import stores
from runtime.contract.client.keys import CREDENTIALS, refusal
from runtime.contract.client.secrets import secret_settings
from runtime.contract.client.stores import Reference, Setting
from runtime.contract.spec.shapes import SettingsShape
from runtime.contract.spec.units import BYTES, MILLISECONDS

LARGEST = 2**63 - 1
_QUANTITY = re.compile(r"(?P<number>\d{1,19}(?:\.\d{1,9})?) ?(?P<unit>[A-Za-z]+)")
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,2}(?:_\d{3})+|[1-9]\d{0,18})")
_DECIMAL = re.compile(r"(?:0|[1-9]\d{0,14})(?:\.\d{1,30})?")
_ZERO_LED = re.compile(r"-?0\d+")
_OTHER_BASE = re.compile(r"-?0[xob][0-9A-Fa-f_]+")


class NotReadable(ValueError):
    """Text is not what was expected. `what` says why, `hint` how to write it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def whole(text: str) -> int:
    """Returns an integer: decimal digits, with `_` between thousands.

    Text that YAML 1.1 and 1.2 read as different numbers is refused.
    """
    if _WHOLE.fullmatch(text):
        return int(text)
    if _ZERO_LED.fullmatch(text):
        raise NotReadable(
            f'"{text}" begins with a zero, which some YAML readers take for octal',
            "write it without the zero",
        )
    if _OTHER_BASE.fullmatch(text):
        raise NotReadable(f'"{text}" is not written in decimal digits', "write it in decimal digits")
    raise NotReadable("not a whole number", "")


def decimal(text: str) -> float | None:
    """Returns a number, a whole one as an int; None for other text."""
    return number(float(text)) if _DECIMAL.fullmatch(text) else None


def duration(text: str) -> int:
    """Returns the milliseconds of a duration such as `7d`."""
    return _quantity(text, MILLISECONDS, "a duration", "30s", "ms, s, m, h, d or w")


def size(text: str) -> int:
    """Returns the bytes of `10MB` (powers of 1000) or `10MiB` (powers of 1024)."""
    return _quantity(text, BYTES, "a size", "10MB", "B, KB, MB, GB, TB, KiB, MiB, GiB or TiB")


def rate(text: str) -> int:
    """Returns the bytes per second of a rate such as `50MB/s`."""
    amount, slash, per = text.partition("/")
    if not slash or per.strip() != "s":
        raise NotReadable("a rate is a size per second", "write it as 50MB/s")
    return size(amount.strip())


def moment(text: str) -> int:
    """Returns the milliseconds since 1970 of an ISO 8601 time with a zone, or of digits."""
    if text.isascii() and text.isdigit():
        return whole(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise NotReadable("not a time", "write it as 2026-01-01T00:00:00Z") from None
    if when.tzinfo is None:
        raise NotReadable("a time without its zone", 'write the zone: "Z" for UTC, or "+02:00"')
    milliseconds = round(when.timestamp() * 1000)
    if milliseconds < 0:
        raise NotReadable("a time before 1970", "Kafka's timestamps begin there")
    return milliseconds


def text_of(value: object) -> str:
    """Returns a computed value as YAML writes it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quantity(text: str, units: MappingProxyType[str, int], what: str, example: str, unit_names: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        if text.isascii() and text.isdigit():
            raise NotReadable(f"{what} without its unit", f"write the unit: {unit_names}")
        raise NotReadable(f"not {what}", f"write it as {example}")
    unit = match["unit"]
    if unit not in units:
        right = next((candidate for candidate in units if candidate.casefold() == unit.casefold()), None)
        hint = f'did you mean "{right}"?' if right else f"the units are {unit_names}"
        raise NotReadable(f'"{unit}" is no unit of {what}', hint)
    amount = Decimal(match["number"]) * units[unit]
    if amount != int(amount):
        raise NotReadable("a fraction that is no whole number of the smallest unit", "use a smaller unit")
    if amount > LARGEST:
        raise NotReadable("more than Kafka can hold", "use a smaller value")
    return int(amount)


def spark_bytes(text: str) -> int:
    """Returns a size in bytes, from text that Spark reads, such as 128m or 1g."""
    number = text.rstrip("bB")
    return int(number[:-1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[number[-1].lower()]


NUMBER = re.compile(r"-?\d+(_\d+)*")
# YAML's other words for true and false, which are read for Kafka's own booleans.
WORDS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}


class PlacedReference(Reference):
    """A reference to a secret, with its place in the YAML."""

    __slots__ = ("source",)
    source: SourceLocation


def setting_value(shape: SettingsShape, name: str, node: Node) -> Setting:
    """Returns the text for Kafka, or the reference to a secret. Raises NotReadable for anything else."""
    if isinstance(node, MapNode):
        return _reference(shape, name, node)
    if isinstance(node, ListNode):
        text = ",".join(_text(name, item) for item in node.items)
    else:
        text = _text(name, node)
    if shape.public and secret_settings({name: text}):
        raise NotReadable(
            f'"{name}" is a secret of Spark, and a job\'s settings stand in the plan and in topics',
            "keep it on the machines that run the job: in their spark-defaults.conf (standalone, yarn) or in "
            "their environment (docs/launch.md, Secrets of Spark)",
        )
    return text


def check_name(shape: SettingsShape, name: str) -> None:
    """Raises NotReadable if there is no setting of this name, or a topology may not set it."""
    if not name or any(sign.isspace() for sign in name):
        raise NotReadable("the name of a setting is empty or holds a space", "use Kafka's name of it")
    if not name.startswith(shape.prefix):
        raise NotReadable(f'"{name}" does not begin with "{shape.prefix}"', "use the setting's whole name")
    if shape.client and (refused := refusal(name)) is not None:
        raise NotReadable(f'"{name}" {refused.why}', refused.hint)
    if shape.store and name not in stores.KEYS:
        what = f'"{name}" is no setting of an object store'
        raise NotReadable(what, f"it takes {prose(stores.KEYS, 'and')}")


def _reference(shape: SettingsShape, name: str, node: MapNode) -> Setting:
    if not (shape.client or shape.store):
        raise NotReadable(f'"{name}" is a map', "it takes text, a number, a duration or a size")
    keys = [key.text for key, _ in node.pairs]
    if len(keys) != 1 or keys[0] not in ("env", "file"):
        raise NotReadable(f'"{name}" is a map', "it takes text, {env: VARIABLE} or {file: path}")
    credentials = stores.CREDENTIALS if shape.store else CREDENTIALS
    if name not in credentials:
        raise NotReadable(
            f'"{name}" takes no reference: it carries no credential',
            "write its value out; {env: …} and {file: …} are for " + prose(sorted(credentials), "and"),
        )
    kind, value = keys[0], node.pairs[0][1]
    if not isinstance(value, ScalarNode) or value.is_null:
        raise NotReadable(f'"{kind}" of "{name}" is {kind_of(value)}', "it takes a name")
    if kind == "env" and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value.text) is None:
        # Perhaps the secret itself stands here: it is not repeated.
        raise NotReadable(
            f'"env" of "{name}" is not the name of an environment variable', "use letters, digits and _"
        )
    reference = PlacedReference({"env" if kind == "env" else "file": value.text})
    reference.source = value.source
    return reference


def _text(name: str, node: Node) -> str:
    if not isinstance(node, ScalarNode) or node.is_null:
        raise NotReadable(f'"{name}" is {kind_of(node)}', "it takes text, a number, a duration or a size")
    text = node.text
    if node.plain and NUMBER.fullmatch(text):
        return text.replace("_", "")
    if looks_secret(name):
        return text
    if node.plain and (text.lower() in ("true", "false") or name in BOOLEANS):
        return WORDS.get(text.lower(), text)
    return value_as_text(name, text, shown(node))


def value_as_text(name: str, text: str, said: str = "") -> str:
    """Returns the value of a setting with its duration or size in Kafka's unit.

    Text that is neither stays as it is if the name is not one of Kafka's own: a vendor's `.ms` may be
    something else.
    """
    if name.endswith(".ms"):
        return _number(name, text, said, "milliseconds or a duration such as 7d", duration)
    if name.endswith(".bytes"):
        return _number(name, text, said, "bytes or a size such as 1GB", size)
    return text


def _number(name: str, text: str, said: str, wanted: str, parse: Callable[[str], int]) -> str:
    if NUMBER.fullmatch(text):
        return text.replace("_", "")
    try:
        return str(parse(text))
    except NotReadable as not_readable:
        if name not in NUMBERS:
            return text
        hint = not_readable.hint if "did you mean" in not_readable.hint else f"it takes {wanted}"
        what = f'"{name}" is {said}: {not_readable.what}' if said else not_readable.what
        raise NotReadable(what, hint) from None
