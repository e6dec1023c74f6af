"""Reads the values of Kafka's own settings: text as it is, durations and sizes as the numbers Kafka takes."""

import re
from collections.abc import Callable

from planner.config.hints import prose, shown
from planner.config.language import scalars
from planner.config.yaml_tree.nodes import Mapping, Node, Scalar, Sequence, kind_of
from planner.diff.values import BOOLEANS, NUMBERS
from planner.model.shapes import SettingsShape
from planner.model.topology import SecretRef, Setting, looks_secret
from runtime.contract.client.keys import CREDENTIALS, refusal
from runtime.contract.client.redaction import secret_settings

NUMBER = re.compile(r"-?\d+(_\d+)*")
# YAML's other words for true and false, which are read for Kafka's own booleans.
WORDS = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}


def setting_value(shape: SettingsShape, name: str, node: Node) -> Setting:
    """Returns the text for Kafka, or the reference to a secret. Raises NotReadable for anything else."""
    if isinstance(node, Mapping):
        return _reference(shape, name, node)
    if isinstance(node, Sequence):
        text = ",".join(_text(name, item) for item in node.items)
    else:
        text = _text(name, node)
    if shape.public and secret_settings({name: text}):
        raise scalars.NotReadable(
            f'"{name}" is a secret of Spark, and a job\'s settings stand in the plan and in topics',
            "keep it on the machines that run the job: in their spark-defaults.conf (standalone, yarn) or in "
            "their environment (docs/launch.md, Secrets of Spark)",
        )
    return text


def check_name(shape: SettingsShape, name: str) -> None:
    """Raises NotReadable if there is no setting of this name, or a topology may not set it."""
    if not name or any(sign.isspace() for sign in name):
        raise scalars.NotReadable("the name of a setting is empty or holds a space", "use Kafka's name of it")
    if not name.startswith(shape.prefix):
        raise scalars.NotReadable(
            f'"{name}" does not begin with "{shape.prefix}"', "use the setting's whole name"
        )
    if shape.client and (refused := refusal(name)) is not None:
        raise scalars.NotReadable(f'"{name}" {refused.why}', refused.way_out)


def _reference(shape: SettingsShape, name: str, node: Mapping) -> SecretRef:
    if not shape.client:
        raise scalars.NotReadable(f'"{name}" is a map', "it takes text, a number, a duration or a size")
    keys = [key.text for key, _ in node.pairs]
    if len(keys) != 1 or keys[0] not in ("env", "file"):
        raise scalars.NotReadable(f'"{name}" is a map', "it takes text, {env: VARIABLE} or {file: path}")
    if name not in CREDENTIALS:
        raise scalars.NotReadable(
            f'"{name}" takes no reference: it carries no credential',
            "write its value out; {env: …} and {file: …} are for " + prose(sorted(CREDENTIALS), "and"),
        )
    kind, value = keys[0], node.pairs[0][1]
    if not isinstance(value, Scalar) or value.is_null:
        raise scalars.NotReadable(f'"{kind}" of "{name}" is {kind_of(value)}', "it takes a name")
    if kind == "env" and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value.text) is None:
        # Perhaps the secret itself stands here: it is not repeated.
        raise scalars.NotReadable(
            f'"env" of "{name}" is not the name of an environment variable', "use letters, digits and _"
        )
    return SecretRef("env" if kind == "env" else "file", value.text, value.source)


def _text(name: str, node: Node) -> str:
    if not isinstance(node, Scalar) or node.is_null:
        raise scalars.NotReadable(
            f'"{name}" is {kind_of(node)}', "it takes text, a number, a duration or a size"
        )
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
        return _number(name, text, said, "milliseconds or a duration such as 7d", scalars.duration)
    if name.endswith(".bytes"):
        return _number(name, text, said, "bytes or a size such as 1GB", scalars.size)
    return text


def _number(name: str, text: str, said: str, wanted: str, parse: Callable[[str], int]) -> str:
    if NUMBER.fullmatch(text):
        return text.replace("_", "")
    try:
        return str(parse(text))
    except scalars.NotReadable as not_readable:
        if name not in NUMBERS:
            return text
        hint = not_readable.hint if "did you mean" in not_readable.hint else f"it takes {wanted}"
        what = f'"{name}" is {said}: {not_readable.what}' if said else not_readable.what
        raise scalars.NotReadable(what, hint) from None
