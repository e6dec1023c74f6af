"""`repl status`: looks at every cluster, and what follows from them."""
