"""A slot is the process of one Spark task: it fetches, filters, stamps, produces and commits batches.

The flow owns a reader, lanes and a supervisor, which emit events that it handles in one place. What these
parts share lives in this folder; nothing here knows the driver, Spark or the planner.
"""
