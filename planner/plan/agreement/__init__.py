"""Pure: checks that a saved plan's steps match its changes and that the clusters are still as it saw them.

Apply runs these checks again before it sends anything.
"""
