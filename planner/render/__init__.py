"""Plan → text, JSON, Markdown, HTML."""
