"""One segment's batches: their framing, their place in the log, and the indexes that point at them."""
