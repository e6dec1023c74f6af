"""This package makes the metric families of a job: each module makes those of one subject."""
