"""The small text files of a log directory: offset checkpoints, leader epochs, and whose directory it is."""
