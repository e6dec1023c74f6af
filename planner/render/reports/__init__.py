"""Pure: the output of commands, as text and as JSON. One module for each command."""
