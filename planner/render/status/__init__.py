"""Pure: the screens of `repl status`."""
