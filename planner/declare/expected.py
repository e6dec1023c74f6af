"""What a shape takes, in words."""

from typing import assert_never

from planner.declare import shapes
from planner.declare.hints import prose
from planner.declare.shapes import Shape

SHOWN_KEYS = 6


def describe(shape: Shape) -> str:
    match shape:
        case (
            shapes.Text()
            | shapes.Anything()
            | shapes.TopicName()
            | shapes.Flag()
            | shapes.Duration()
            | shapes.Rate()
            | shapes.Moment()
            | shapes.Regex()
            | shapes.Settings()
            | shapes.Either()
        ):
            return shape.expected
        case shapes.Choice():
            return prose(shape.words)
        case shapes.Whole():
            return _whole(shape)
        case shapes.Listing():
            item = describe(shape.item)
            return f"{item}, or a list of such" if shape.lone else f"a list, each {item}"
        case shapes.Table():
            return f"a map of {shape.named}s"
        case shapes.Record():
            return _record(shape)
        case shapes.OrOff():
            return f"off, or {_record(shape.shape)}"
        case _:
            assert_never(shape)


def _whole(shape: shapes.Whole) -> str:
    if shape.most < 2**31 - 1:
        return f"a whole number from {shape.least} to {shape.most}"
    return f"a whole number, {shape.least} or more"


def _record(shape: shapes.Record) -> str:
    required = [key.name for key in shape.keys if key.required]
    names = required or [key.name for key in shape.keys]
    listed = names[:SHOWN_KEYS] + (["…"] if len(names) > SHOWN_KEYS else [])
    return f"a map with {prose(listed, 'and')}"
