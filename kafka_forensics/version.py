"""The version of this package, and nothing else."""

__version__ = "1.0.0"
