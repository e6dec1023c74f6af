"""Pure: a plan as text, JSON, Markdown and HTML."""
