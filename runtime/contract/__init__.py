"""What both sides agree on: pure values and rules, shared by planner and runtime."""
