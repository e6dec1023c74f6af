"""Values of the model as plain trees of dicts, lists, text and numbers, and back.

`plain(value, kind)` follows the types that the classes declare, and `value_of(tree, kind)` is its inverse. A
field that holds its default is left out. An address is written as people write it. Where a type allows more
than one class, the tree names the class under `kind`. A mapping whose keys are objects is a list of pairs.

The inverse is strict, because a tree may come from an untrusted file: each value has exactly the type that is
declared, each key is the name of a field, and NotPlain names the place of the first one that is not so.

A secret that is written out in client settings is masked. Everything else comes back equal.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from planner.model.address import Address
from planner.model.topology import Setting, looks_secret
from runtime.contract.client.secrets import SENSITIVE

Convert = Callable[[Any], Any]

KIND = "kind"  # names the class of a value where its type allows several
_SCALARS = frozenset({NoneType, bool, int, float, str})
_SETTINGS = Mapping[str, Setting]


class NotPlain(ValueError):
    """The tree is not that of a value. `place` leads to the wrong part."""

    def __init__(self, why: str, place: str = "") -> None:
        super().__init__(f"{why}, at {place}" if place else why)
        self.why = why
        self.place = place

    def below(self, name: object) -> "NotPlain":
        """Returns the same error, seen from the value that holds the wrong one."""
        return NotPlain(self.why, f"{name}.{self.place}" if self.place else str(name))


def plain(value: Any, kind: Any = object) -> Any:
    """Returns the plain tree of a value. Without a kind, the value's own class says what it is."""
    return _to_plain(kind)(value)


def value_of(tree: Any, kind: Any) -> Any:
    """Returns the value of a plain tree, of the kind that is asked for. Raises NotPlain."""
    return _from_plain(kind)(tree)


def kind_name(kind: type) -> str:
    """Returns the name of a class in a tree: `create_topic`."""
    name = kind.__name__
    return "".join(f"_{one.lower()}" if one.isupper() and at else one.lower() for at, one in enumerate(name))


_KINDS: dict[type, tuple[type, ...]] = {}


def declare_kinds(base: type, kinds: tuple[type, ...]) -> None:
    """Says which classes a value has whose declared type is `base`."""
    _KINDS[base] = kinds


def _is_class(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind) and kind is not Address


@cache
def _to_plain(kind: Any) -> Convert:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind == _SETTINGS:
        return _masked
    if kind in _KINDS:
        return _union_to_plain(_KINDS[kind])
    if _is_class(kind):
        return _class_to_plain(kind)
    if origin in (Union, UnionType):
        return _union_to_plain(arguments)
    if origin is list or (origin is tuple and arguments[-1] is ...):
        item = _to_plain(arguments[0])
        return lambda value: [item(one) for one in value]
    if origin is Mapping or origin is dict:
        key, inner = arguments[0], _to_plain(arguments[1])
        if _is_class(key):
            first = _to_plain(key)
            return lambda value: [[first(one), inner(other)] for one, other in value.items()]
        return lambda value: {str(one): inner(other) for one, other in value.items()}
    return _as_it_is


def _as_it_is(value: Any) -> Any:
    kind: Any = type(value)
    if kind in _SCALARS:
        return value
    match value:
        case Enum():
            return value.value
        case Address():
            return str(value)
        case msgspec.Struct():
            return _without_secrets(msgspec.to_builtins(value, str_keys=True))
        case Mapping():
            return {str(key): _as_it_is(one) for key, one in value.items()}
        case tuple() | list():
            return [_as_it_is(one) for one in value]
        case frozenset() | set():
            return sorted(_as_it_is(one) for one in value)
        case _ if _is_class(kind):
            return _to_plain(kind)(value)
        case _:
            raise TypeError(f"{kind.__name__} has no plain form")


def _masked(settings: Mapping[str, Setting]) -> dict[str, Any]:
    return {
        key: SENSITIVE if isinstance(value, str) and looks_secret(key) else _as_it_is(value)
        for key, value in sorted(settings.items())
    }


def _without_secrets(tree: Any) -> Any:
    """Masks the client settings in the tree of a struct."""
    match tree:
        case dict():
            masked = {key: _without_secrets(part) for key, part in tree.items()}
            if isinstance(client := masked.get("client"), dict):
                masked["client"] = _masked(client)
            return masked
        case list():
            return [_without_secrets(part) for part in tree]
        case _:
            return tree


@cache
def _class_to_plain(kind: type) -> Convert:
    parts = tuple((name, default, _to_plain(hint)) for name, default, hint in _fields_of(kind))

    def convert(value: Any) -> dict[str, Any]:
        tree = {}
        for name, default, part in parts:
            if (held := getattr(value, name)) != default:
                tree[name] = part(held)
        return tree

    return convert


def _union_to_plain(kinds: tuple[Any, ...]) -> Convert:
    classes = [kind for kind in kinds if _is_class(kind)]
    if len(classes) > 1:
        tagged = {kind: (kind_name(kind), _to_plain(kind)) for kind in classes}

        def convert(value: Any) -> Any:
            if type(value) not in tagged:
                return _as_it_is(value)
            name, part = tagged[type(value)]
            return {KIND: name, **part(value)}

        return convert
    others = [kind for kind in kinds if kind is not NoneType]
    if len(others) > 1:
        return _as_it_is
    inner = _to_plain(others[0])
    return lambda value: None if value is None else inner(value)


@cache
def _fields_of(kind: type) -> tuple[tuple[str, Any, Any], ...]:
    """Returns each field with its default and its type. MISSING is no default, and equals no value."""
    hints = get_type_hints(kind)
    return tuple(
        (
            one.name,
            one.default_factory() if one.default_factory is not MISSING else one.default,
            hints[one.name],
        )
        for one in fields(kind)
    )


@cache
def _from_plain(kind: Any) -> Convert:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _SCALARS:
        return _scalar(kind)
    if kind is Address:
        return _address
    if kind in _KINDS:
        return _union_from_plain(_KINDS[kind])
    if _is_class(kind):
        return _class_from_plain(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(kind)
    if origin is Literal:
        return _literal(arguments)
    if origin in (Union, UnionType):
        return _union_from_plain(arguments)
    if origin in (tuple, list, frozenset):
        return _many(origin, arguments)
    if origin is Mapping or origin is dict:
        return _mapping(*arguments)
    raise TypeError(f"{kind} has no plain form")


def _wrong(expected: str, tree: object) -> NotPlain:
    return NotPlain(f"{expected} is expected, and not {_NAMES.get(type(tree), 'this')}")


_NAMES: Mapping[type, str] = {
    NoneType: "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
}


def _scalar(kind: type) -> Convert:
    allowed = (int, float) if kind is float else (kind,)

    def convert(tree: Any) -> Any:
        if type(tree) not in allowed:
            raise _wrong(_NAMES[kind], tree)
        return tree

    return convert


def _address(tree: Any) -> Address:
    if type(tree) is not str:
        raise _wrong("an address", tree)
    try:
        return Address.parse(tree)
    except ValueError as wrong:
        raise NotPlain(str(wrong)) from None


def _enum(kind: type[Enum]) -> Convert:
    known = {one.value: one for one in kind}

    def convert(tree: Any) -> Enum:
        if type(tree) not in (str, int) or tree not in known:
            raise NotPlain(f"{tree!r:.40} is none of {', '.join(map(str, known))}")
        return known[tree]

    return convert


def _literal(values: tuple[Any, ...]) -> Convert:
    def convert(tree: Any) -> Any:
        if type(tree) not in _SCALARS or tree not in values:
            raise NotPlain(f"{tree!r:.40} is none of {', '.join(map(str, values))}")
        return tree

    return convert


def _struct(kind: type[msgspec.Struct]) -> Convert:
    def convert(tree: Any) -> Any:
        try:
            return msgspec.convert(tree, kind, str_keys=True)
        except msgspec.ValidationError as wrong:
            raise NotPlain(str(wrong)) from None

    return convert


def _class_from_plain(kind: type) -> Convert:
    parts = {name: _from_plain(hint) for name, _, hint in _fields_of(kind)}
    required = [name for name, default, _ in _fields_of(kind) if default is MISSING]

    def convert(tree: Any) -> Any:
        if type(tree) is not dict:
            raise _wrong(f"an object ({kind_name(kind)})", tree)
        held = {}
        for name, inner in tree.items():
            part = parts.get(name)
            if part is None:
                raise NotPlain(f"{kind_name(kind)} has no {name!r:.40}")
            try:
                held[name] = part(inner)
            except NotPlain as wrong:
                raise wrong.below(name) from None
        for name in required:
            if name not in held:
                raise NotPlain(f"{kind_name(kind)} lacks {name}")
        return kind(**held)

    return convert


def _union_from_plain(kinds: tuple[Any, ...]) -> Convert:
    classes = [kind for kind in kinds if _is_class(kind)]
    others = [kind for kind in kinds if kind not in classes or len(classes) == 1]
    tagged = {kind_name(kind): _from_plain(kind) for kind in classes} if len(classes) > 1 else {}
    alternatives = [_from_plain(kind) for kind in others if kind is not NoneType]
    optional = NoneType in kinds

    def convert(tree: Any) -> Any:
        if tree is None and optional:
            return None
        if tagged and type(tree) is dict:
            name = tree.get(KIND)
            part = tagged.get(name) if type(name) is str else None
            if part is None:
                raise NotPlain(f"the kind {name!r:.40} is none of {', '.join(tagged)}")
            return part({key: one for key, one in tree.items() if key != KIND})
        if len(alternatives) == 1:
            return alternatives[0](tree)
        wrong = _wrong("another value", tree)
        for alternative in alternatives:
            try:
                return alternative(tree)
            except NotPlain as one:
                wrong = one
        raise wrong

    return convert


def _many(origin: type, arguments: tuple[Any, ...]) -> Convert:
    if origin is tuple and arguments[-1] is not ...:
        parts = [_from_plain(kind) for kind in arguments]

        def fixed(tree: Any) -> Any:
            if type(tree) is not list or len(tree) != len(parts):
                raise _wrong(f"a list of {len(parts)}", tree)
            return tuple(part(one) for part, one in zip(parts, tree, strict=True))

        return fixed
    item = _from_plain(arguments[0])

    def convert(tree: Any) -> Any:
        if type(tree) is not list:
            raise _wrong("a list", tree)
        held = []
        for at, one in enumerate(tree):
            try:
                held.append(item(one))
            except NotPlain as wrong:
                raise wrong.below(at) from None
        return origin(held)

    return convert


def _mapping(key: Any, kind: Any) -> Convert:
    item = _from_plain(kind)
    if _is_class(key):
        pairs = _many(tuple, (tuple[key, kind], ...))
        return lambda tree: dict(pairs(tree))

    def convert(tree: Any) -> Any:
        if type(tree) is not dict:
            raise _wrong("an object", tree)
        held = {}
        for name, one in tree.items():
            try:
                held[_number(name) if key is int else name] = item(one)
            except NotPlain as wrong:
                raise wrong.below(name) from None
        return held

    return convert


def _number(name: str) -> int:
    if not name.isascii() or not name.isdecimal() or len(name) > 20 or str(int(name)) != name:
        raise NotPlain(f"{name!r:.40} is no number")
    return int(name)
