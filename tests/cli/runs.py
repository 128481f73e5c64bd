"""The type of the fixtures that run the command line."""

from collections.abc import Callable

Run = Callable[..., tuple[int, str, str]]
"""Exit status, stdout and stderr of a command line with these arguments."""
