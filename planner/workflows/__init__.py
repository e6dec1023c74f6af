"""What commands do, callable without a terminal: plan, apply, failover and the rest."""
