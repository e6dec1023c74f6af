"""Pure: changes → ordered steps, guards, policies, fingerprints."""
