"""Attacks on the machine that plans and on the job, each with the defence that holds."""
