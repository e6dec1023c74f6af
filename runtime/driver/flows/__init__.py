"""The flows of a job, from takeover to end: begun, followed, promoted, failed over, brought back."""
