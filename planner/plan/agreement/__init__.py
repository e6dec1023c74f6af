"""Pure: whether a saved plan's steps are what it shows, and whether the clusters are still as it saw them."""
