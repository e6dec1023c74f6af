"""The slots of a job: submitted to Spark, assigned, told and heard."""
