"""Consumer group offsets are read at both sides of a flow and translated here."""
