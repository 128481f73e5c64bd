"""How much the folds remember of producers and transactions, however many a log has.

A state with nothing left of it forgets what has been silent longest. One that may have something left of it cannot know what
that is, and forgets nothing: it ends early instead, and another goes on behind it (`ReplicaState.filled`).
"""

from typing import Final

MAX_PRODUCERS: Final = 65_536
"""Producers of a log that are remembered; of more, the half that has been silent longest is forgotten."""
MAX_OPEN: Final = 65_536
"""Open transactions of a log that are remembered; of more, those with the smallest first offsets, which hold readers back."""
STRETCH_PRODUCERS: Final = 24_576
"""Producers that a stretch may have met before it ends: with those of another chunk, half of MAX_PRODUCERS."""
STRETCH_BATCHES: Final = 57_344
"""First batches of producers, and aborted transactions, of such a stretch."""
SETTLED_ABOVE: Final = 4096
"""Producers of a log above which the batches that wait for what stands left of them are judged at once, nothing being left."""
MAX_ENDINGS: Final = 32_768
"""Aborted transactions of a log above which those that their `.txnindex` lists are let go of at once."""
MAX_UNLISTED: Final = 4096
"""Then, of each segment: entries without a transaction, and transactions without an entry, that are kept."""
