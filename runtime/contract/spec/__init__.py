"""The job spec and what follows from it: names, routes, settings of mirrors, assignments. Pure."""
