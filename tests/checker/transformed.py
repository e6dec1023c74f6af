"""A transform, and what it makes of a record, in plain Python that shares nothing with the product.

The values are those of `Spec(json=True)`, as `json.dumps` writes them: the result is known to the byte. It
is one line, and the names of fields that are written again have no escapes.
"""

import json
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from runtime.contract.spec.transform import FormatSpec, TransformSpec
from tests.checker.shapes import ESCAPED_NAME, Headers

TRANSFORM: Final = TransformSpec(
    value=FormatSpec(
        format="json",
        schema="id BIGINT, email STRING, country STRING, card STRING, address STRUCT<street: STRING>",
    ),
    key=FormatSpec(format="text"),
    where="value.country <> 'DE' AND headers['test'] IS NULL AND 1000000000 DIV value.id > 0",
    set={"value.email": "sha2(value.email, 256)", "value.address.street": "left(value.address.street, 1)"},
    drop=("value.card",),
)
DELETING: Final = replace(TRANSFORM, on_filtered="tombstone")

Pairs = list[tuple[str, Any]]


class _Object(Pairs):
    """The members of an object in their order; a name may occur twice."""


def transformed(value: bytes | None, headers: Headers) -> tuple[bool, bytes | None]:
    """Returns whether the record travels, and its value then."""
    if value is None:
        return True, None
    fields = json.loads(value, object_pairs_hook=_Object)
    last = dict(fields)
    if last["country"] in (None, "DE") or dict(headers).get("test") is not None:
        return False, None
    kept: Pairs = []
    for name, content in fields:
        if name == "email" and content is not None:
            kept.append((name, sha256(content.encode()).hexdigest()))
        elif name == "address" and content:
            street = ((one, inner[:1] if one == "street" else inner) for one, inner in content)
            kept.append((name, _Object(street)))
        elif name != "card":
            kept.append((name, content))
    # Each name is unique now.
    text = json.dumps(_plain(kept), ensure_ascii=value.isascii())
    if ESCAPED_NAME.encode() in value:  # an inner object that does not change keeps it
        text = text.replace('{"email": "inner"', f'{{{ESCAPED_NAME}"inner"')
    return True, text.encode()


def masking(key: bytes | None, value: bytes | None, headers: Headers) -> tuple[bytes | None, Headers] | None:
    """Returns the value and the headers of a record's copy; None for one that is not copied."""
    travels, new = transformed(value, headers)
    return (new, headers) if travels else None


def deleting(key: bytes | None, value: bytes | None, headers: Headers) -> tuple[bytes | None, Headers] | None:
    """The same where filtered records are copied as tombstones: they have no value and no headers."""
    return masking(key, value, headers) or ((None, []) if key is not None else None)


def _plain(content: Any) -> Any:
    """Returns objects as dictionaries again."""
    match content:
        case list() if content and all(isinstance(one, tuple) for one in content):
            return {name: _plain(inner) for name, inner in content}
        case _Object():
            return {}
        case list():
            return [_plain(one) for one in content]
        case _:
            return content
