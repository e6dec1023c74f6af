"""The metrics of a job, by what they are about: each module makes the families of one thing."""
