"""File endpoints: the manifest, and the files that a task stages."""
