"""The records of the internal topics, as versioned codecs, and the arithmetic of progress. Pure."""
