"""Elections planned on small values: who could lead, what it would cost, in which order to start, and the steps."""
