"""Reads a part of a log again: by offset, by time, record by record."""
