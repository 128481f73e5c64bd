"""`compare`: replicas of one partition side by side around their first difference."""
