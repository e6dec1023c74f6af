"""What a shape takes, in words."""

from typing import assert_never

from planner.config.hints import prose
from planner.model import shapes
from planner.model.shapes import Shape

SHOWN_KEYS = 6


def describe(shape: Shape) -> str:
    match shape:
        case (
            shapes.TextShape()
            | shapes.AnyShape()
            | shapes.TopicNameShape()
            | shapes.BooleanShape()
            | shapes.DurationShape()
            | shapes.RateShape()
            | shapes.TimestampShape()
            | shapes.RegexShape()
            | shapes.SettingsShape()
            | shapes.AlternativesShape()
        ):
            return shape.expected
        case shapes.ChoiceShape():
            return prose(shape.words)
        case shapes.IntegerShape():
            return _whole(shape)
        case shapes.ListShape():
            item = describe(shape.item)
            return f"{item}, or a list of such" if shape.lone else f"a list, each {item}"
        case shapes.MapShape():
            return f"a map of {shape.named}s"
        case shapes.RecordShape():
            return _record(shape)
        case shapes.OffOrShape():
            return f"off, or {_record(shape.shape)}"
        case _:
            assert_never(shape)


def _whole(shape: shapes.IntegerShape) -> str:
    if shape.most < 2**31 - 1:
        return f"a whole number from {shape.least} to {shape.most}"
    return f"a whole number, {shape.least} or more"


def _record(shape: shapes.RecordShape) -> str:
    required = [key.name for key in shape.keys if key.required]
    names = required or [key.name for key in shape.keys]
    listed = names[:SHOWN_KEYS] + (["…"] if len(names) > SHOWN_KEYS else [])
    return f"a map with {prose(listed, 'and')}"
