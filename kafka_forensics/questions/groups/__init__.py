"""`groups`: committed offsets against the logs they point into."""
