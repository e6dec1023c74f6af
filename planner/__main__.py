"""`python -m planner` is `repl`."""

from planner.cli import main

main()
