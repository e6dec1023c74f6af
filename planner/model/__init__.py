"""Pure data: the values that travel along load → expand → observe → diff → plan → render | execute."""
