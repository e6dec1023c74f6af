"""This package is `repl ui`: pages over the workflows' results, for a browser, live and read-only.

It asks workflows and renders values; it reads no cluster, no file of a topology and no plan by itself. Only
the command line uses it.
"""
