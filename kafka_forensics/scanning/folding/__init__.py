"""Runs all folds over a replica's bytes: splits are folded ahead and merged in order."""
