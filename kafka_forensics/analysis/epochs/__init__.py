"""Leader epochs: where they begin and end, by the batches and by `leader-epoch-checkpoint`."""

from kafka_forensics.analysis.epochs.epochs import EpochRun, EpochsFold, checkpoint_contradiction, differing_end, epoch_starts

__all__ = ["EpochRun", "EpochsFold", "checkpoint_contradiction", "differing_end", "epoch_starts"]
