"""Looking again at a part of a log: by offset, by time, record by record."""
