"""`find`: records by key, offset, time, producer, header or content."""

from kafka_forensics.questions.search.records import Conditions, Search, found_columns, search

__all__ = ["Conditions", "Search", "found_columns", "search"]
