"""Old and new versions of Kafka in pairs: `make test-versions`."""
