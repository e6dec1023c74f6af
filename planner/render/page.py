"""The environment of the HTML pages: everything that a template writes is escaped."""

from pathlib import Path

import jinja2
from markupsafe import Markup

from planner.render.readable import lines, one_line


def page_environment(folder: Path) -> jinja2.Environment:
    """Returns the environment of the folder's templates."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_showable,
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=-1,
        auto_reload=False,
    )


def _showable(value: object) -> object:
    """Escapes characters that a page would hide or reverse."""
    if isinstance(value, Markup):
        return Markup(lines(value))  # noqa: S704 - escaped already; escapes hold no markup
    return one_line(value) if isinstance(value, str) else value
