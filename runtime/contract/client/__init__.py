"""This package decides which client settings a cluster may have, resolves their secrets and converts them."""
