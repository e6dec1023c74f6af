"""Pure: turns values into text, JSON, Markdown, HTML and YAML. It prints nothing."""
