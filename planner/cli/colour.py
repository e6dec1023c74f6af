"""Whether what is printed may have colours."""

import os


def coloured() -> bool | None:
    """As click wants it: None, on a terminal alone; False, never, for NO_COLOR asks for none."""
    return False if os.environ.get("NO_COLOR") else None
