"""Jobs that a process on this machine supervises: started again, watched, stopped."""
