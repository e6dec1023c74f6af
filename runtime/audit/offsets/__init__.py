"""`repl offsets`, `repl locate` and the rehearsal of a failover: the offset map, asked."""
