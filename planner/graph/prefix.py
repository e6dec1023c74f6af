"""What a prefix of topic names is at the destination of a flow."""

from typing import assert_never

from runtime.contract.spec import rename_match
from runtime.contract.spec.rename import SAME_NAME, Match, Table, Template
from runtime.contract.spec.route import CompiledRoute


def prefix_there(way: CompiledRoute, prefix: str) -> str | None:
    """The prefix that covers exactly the renamed topics; None where none does, or it can't be told."""
    rename = way.route.rename
    if way.route.undoes is not None:
        return prefix if rename == SAME_NAME else None
    match rename:
        case Template(text):
            before, _, after = text.replace("{source}", way.route.source).partition("{topic}")
            return before + prefix if not after else None
        case Table(names):
            spoken_of = any(old.startswith(prefix) or new.startswith(prefix) for old, new in names)
            return None if spoken_of else prefix
        case Match(pattern, to):
            return _through_match(pattern, to, prefix)
        case _:
            assert_never(rename)


def _through_match(pattern: str, to: str, prefix: str) -> str | None:
    """`a-(.*)` → `b-\\1` moves the prefix `a-x` to `b-x`. Other shapes are not looked into."""
    shape = rename_match.shape(pattern, to)
    groups = [piece for piece in shape.old if isinstance(piece, int)]
    open_end = pattern.removesuffix("$").endswith(("(.*)", "(.+)"))
    if len(groups) != 1 or not open_end or shape.new[-1] != groups[0]:
        return None
    old = "".join(piece for piece in shape.old if isinstance(piece, str))
    new = "".join(piece for piece in shape.new if isinstance(piece, str))
    return new + prefix.removeprefix(old) if prefix.startswith(old) else None
