"""Leader epochs: where they begin and end, by the batches and by `leader-epoch-checkpoint`."""
