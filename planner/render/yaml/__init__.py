"""Pure: a topology as YAML text that loads as the same topology."""
