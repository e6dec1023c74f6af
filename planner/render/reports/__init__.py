"""Pure: the output of commands, as text and as JSON. One module for commands that show the same things."""
