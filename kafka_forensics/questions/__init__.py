"""The answer of each command, in one module or sub-package."""
