"""The records of a compacted replica as rows of their keys, sorted in bounded memory."""
