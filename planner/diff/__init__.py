"""Pure: compares the desired objects with the observed ones and returns the changes of a plan.

Values are typed and plain; text for people is made in planner.render by planner.diff.values alone.
"""
