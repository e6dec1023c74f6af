"""`repl salvage`: records that never reached the other side, listed."""
