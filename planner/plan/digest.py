"""The bytes that stand for a plan, and the digest that names it.

The bytes hold every field of the plan, so they cover everything that an apply acts on: the same plan has the
same bytes, whatever machine writes them.
"""

import hashlib
import json
from typing import Any

from planner.model.plan import Plan
from planner.plan.plain import plain

PREFIX = "sha256:"


def digest(plan: Plan) -> str:
    """Return the name of this plan: `sha256:` and 64 hex digits."""
    return digest_of(body_of(plan))


def body_of(plan: Plan) -> dict[str, Any]:
    """Return the plan as the plain tree that a plan file holds."""
    body = plain(plan)
    assert isinstance(body, dict)
    return body


def digest_of(body: dict[str, Any]) -> str:
    return PREFIX + hashlib.sha256(canonical(body)).hexdigest()


def canonical(body: dict[str, Any]) -> bytes:
    """Return the bytes that the digest and the signature are made over."""
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode("ascii")
