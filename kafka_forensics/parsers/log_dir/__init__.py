"""What lies in a log directory, by its files' names."""
