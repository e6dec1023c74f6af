"""The slot's source side: fetching batches, filtering them, and bounding the memory they hold."""
