"""A replica's bytes through all folds: splits, folded ahead and merged in order."""
