"""Reads evidence and never changes it: local files, archives, bundles, storage services."""
