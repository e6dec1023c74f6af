"""What writes again on an operator's word: `repl salvage --replay`, on Spark."""
