"""Generates docs/topology.md from the language."""

from importlib.resources import files

from planner.config.hints import describe
from planner.model import shapes
from planner.model.keys import record_of
from planner.model.shapes import Plain, RecordKeyShape, RecordShape, Shape
from planner.model.topology import Topology

HEAD = ("| key | takes | default | |", "| --- | --- | --- | --- |")


def reference() -> str:
    here = files("planner.config.schema")
    introduction = here.joinpath("introduction.md").read_text(encoding="utf-8")
    example = here.joinpath("example.yaml").read_text(encoding="utf-8")
    sections = [_section(record) for record in _records(record_of(Topology))]
    return "\n".join([introduction.replace("{{ example }}", example.rstrip()), *sections])


def _records(record: RecordShape) -> list[RecordShape]:
    """Returns the record and every record inside it, each once, in the order of the page."""
    found: list[RecordShape] = []
    waiting: list[Shape] = [record]
    while waiting:
        shape = waiting.pop(0)
        if isinstance(shape, RecordShape):
            if shape not in found:
                found.append(shape)
                waiting[0:0] = [key.shape for key in shape.keys]
        else:
            waiting[0:0] = _inside(shape)
    return found


def _inside(shape: Shape) -> list[Shape]:
    match shape:
        case shapes.ListShape():
            return [shape.item]
        case shapes.MapShape():
            return [shape.value]
        case shapes.OffOrShape():
            return [shape.shape]
        case shapes.AlternativesShape():
            return list(shape.alternatives)
        case _:
            return []


def _section(record: RecordShape) -> str:
    lines = [f"### {_title(record)}", ""]
    if record.doc:
        lines += [record.doc, ""]
    lines += [*HEAD, *(_row(key) for key in record.keys), ""]
    return "\n".join(lines)


def _title(record: RecordShape) -> str:
    return f"`{record.name}`"


def _row(key: RecordKeyShape) -> str:
    name = f"`{key.name}`" + (" (required)" if key.required else "")
    example = f" Example: `{key.example}`." if key.example else ""
    cells = (name, _takes(key.shape), _default(key), key.doc + example)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _takes(shape: Shape) -> str:
    inner = _linked(shape)
    match shape:
        case shapes.RecordShape():
            return inner or ""
        case shapes.OffOrShape():
            return f"`off`, or {_linked(shape.shape)}"
        case shapes.ListShape(item=shapes.RecordShape() as item):
            return f"a list of {_linked(item)}"
        case shapes.MapShape(value=shapes.RecordShape() as value):
            return f"a map of {shape.named}s, each {_linked(value)}"
        case shapes.ChoiceShape() if len(shape.words) <= len(SHOWN):
            return ", ".join(f"`{word}`" for word in shape.words)
        case _:
            return describe(shape)


SHOWN = range(5)


def _linked(shape: Shape) -> str | None:
    if isinstance(shape, RecordShape):
        return f"[{shape.name}](#{shape.name.lower()})"
    return None


def _default(key: RecordKeyShape) -> str:
    if key.default is not shapes.ABSENT:
        return f"`{_plain(key.default)}`"
    if key.required:
        return ""
    return key.default_doc or "see there"


def _plain(value: Plain) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_quoted(one) for one in value)}]"
    return _quoted(value) if isinstance(value, str) and not value.isalnum() else str(value)


def _quoted(value: Plain) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
