"""Structs of which a test names only what matters to it."""

from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct, structs

S = TypeVar("S", bound=Struct)


def blank(kind: type[S], **given: Any) -> S:
    """Returns a struct with nothing in the fields that are not given: their default, None, 0 or no text."""
    needed = {
        field.name: field.type
        for field in structs.fields(kind)
        if field.name not in given and field.default is field.default_factory is NODEFAULT
    }
    return kind(**{name: _nothing(of) for name, of in needed.items()} | given)


def _nothing(kind: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return None if NoneType in get_args(kind) else _nothing(get_args(kind)[0])
    return (origin or kind)()
