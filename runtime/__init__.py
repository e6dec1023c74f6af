"""What copies the data; never imports the planner and ships alone to Spark."""
