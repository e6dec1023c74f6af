"""This package takes a job over on another machine when the job's own machine is gone: `repl standby`.

It reads and writes the status topic of the job's destination, and starts the job with a launcher. Nothing of
the driver lives here.
"""
