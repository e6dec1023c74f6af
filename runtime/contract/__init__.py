"""Pure, shared with the planner: job spec, naming, rename rules, record formats, offset map."""
