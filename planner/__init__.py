"""What must change? Declares, observes, diffs, plans and applies; never imports Spark."""
