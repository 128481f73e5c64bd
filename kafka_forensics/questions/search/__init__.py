"""`find`: records by key, offset, time, producer, header or content."""
