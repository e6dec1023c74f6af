"""This package answers `repl offsets`, `repl locate` and the rehearsal of a failover from the offset map."""
