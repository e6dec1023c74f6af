"""Pure: what the reading commands print, as text and as JSON. One module for each command."""
