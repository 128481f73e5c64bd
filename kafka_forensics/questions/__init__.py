"""What a command asks of the copies, one module or sub-package each."""
