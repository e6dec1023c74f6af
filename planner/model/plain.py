"""Values of the model as plain trees of dicts, lists, text and numbers, and back, by msgspec.

An address is written as people write it. Where a type allows more than one class, the tree names the class
under `kind`. A field that holds its default is left out, except in a dataclass that a struct holds.

A tree may come from an untrusted file: each value has exactly the type that is declared, and NotPlain names
the place of the first one that has not.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any

import msgspec

from planner.model.address import Address
from planner.model.topology import looks_secret
from runtime.contract.client.secrets import SENSITIVE

KIND = "kind"  # names the class of a value where its type allows several


class NotPlain(ValueError):
    """The tree is not that of a value."""


def plain(value: Any) -> Any:
    """Returns the plain tree of a value. A set is a list without an order."""
    tree = msgspec.to_builtins(value, str_keys=True, enc_hook=_text)
    _leave_out_defaults(value, tree)
    return tree


def value_of(tree: Any, kind: Any) -> Any:
    """Returns the value of a plain tree, of the kind that is asked for. Raises NotPlain."""
    try:
        return msgspec.convert(tree, kind, str_keys=True, dec_hook=_address)
    except msgspec.ValidationError as wrong:
        raise NotPlain(str(wrong)) from None


def kind_name(name: str) -> str:
    """Returns the name of a class in a tree: `create_topic` for CreateTopic."""
    return "".join(
        f"_{letter.lower()}" if letter.isupper() and at else letter.lower() for at, letter in enumerate(name)
    )


def masked(tree: Any) -> Any:
    """Returns the tree without the secrets that are written out in client settings."""
    match tree:
        case Mapping():
            parts = {key: masked(part) for key, part in tree.items()}
            if isinstance(client := parts.get("client"), dict):
                parts["client"] = {
                    key: SENSITIVE if isinstance(setting, str) and looks_secret(key) else setting
                    for key, setting in client.items()
                }
            return parts
        case list() | tuple():
            return [masked(part) for part in tree]
        case _:
            return tree


def _leave_out_defaults(value: Any, tree: Any) -> None:
    """Removes the fields of dataclasses that hold their default, as msgspec does of structs by itself."""
    match value:
        case Mapping():
            for key, part in value.items():
                _leave_out_defaults(part, tree[str(key)])
        case tuple() | list():
            for part, subtree in zip(value, tree, strict=True):
                _leave_out_defaults(part, subtree)
        case _ if is_dataclass(value) and not isinstance(value, type):
            for name, default in _defaults_of(type(value)):
                if (part := getattr(value, name)) == default:
                    del tree[name]
                else:
                    _leave_out_defaults(part, tree[name])


@cache
def _defaults_of(kind: type) -> tuple[tuple[str, object], ...]:
    """Returns each field with its default. MISSING is no default, and equals no value."""
    return tuple(
        (
            field.name,
            field.default_factory() if field.default_factory is not MISSING else field.default,
        )
        for field in fields(kind)
    )


def _text(value: object) -> str:
    if isinstance(value, Address):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no plain form")


def _address(kind: type, tree: object) -> Address:
    if kind is not Address or not isinstance(tree, str):
        raise TypeError(f"Expected an address, got {type(tree).__name__}")
    return Address.parse(tree)
