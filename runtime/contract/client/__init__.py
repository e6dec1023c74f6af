"""A cluster's client settings: which are allowed, what they become, where their secrets are."""
