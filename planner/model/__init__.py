"""Pure data: the frozen values that travel along load → observe → graph → diff → plan → render | execute."""
