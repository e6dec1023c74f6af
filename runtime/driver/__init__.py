"""The Spark application: discovery, assignment, generations, fencing and its duties."""
