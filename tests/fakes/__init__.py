"""Hand-written stand-ins behind a seam, one for each real part that a fast test must do without."""
