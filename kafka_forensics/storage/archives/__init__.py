"""Members of `.tar` and `.zip` archives, compressed or not, read in place."""
