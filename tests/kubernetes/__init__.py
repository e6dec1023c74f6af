"""Stories on a real node of Kubernetes, which `make test-kubernetes` builds and starts."""
