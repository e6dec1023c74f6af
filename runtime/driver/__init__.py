"""The Spark application: discovery, assignment, generations, fencing, follow duties, status."""
