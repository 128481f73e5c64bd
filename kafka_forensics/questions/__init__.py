"""What a command asks of the copies, one sub-package each."""
