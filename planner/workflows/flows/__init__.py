"""Changes of one flow's state: the edited topology is planned, approved, written and applied."""
