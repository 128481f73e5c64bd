"""A `.log` file: segments as chunks of batches, the records in them, codecs, and damage as rows."""
