"""How large a bundle will be, and how long it takes, by the beginnings of some logs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_forensics.errors import UsageError
from kafka_forensics.model.amounts import size
from kafka_forensics.model.bundles import Detail
from kafka_forensics.parsers.log import believed_to
from kafka_forensics.questions.collect.files import INDEXES
from kafka_forensics.questions.collect.log_facts import may_be_in_blocks
from kafka_forensics.questions.collect.weighing import IndexWeights, Weight, Weights, chosen, weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafka_forensics.questions.collect.files import CollectedEntry, Tree
    from kafka_forensics.questions.collect.log_facts import FactsWanted

EMPTY_BYTES: Final = 4096
"""Of a bundle of nothing: what it says of itself, the seal, and the frames of its members."""
SMALL_FILE_BYTES: Final = 200
"""About what a small file takes, with its row in the listing."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is to be expected, and by how many bytes that is told."""

    files: int
    bytes_in_all: int
    bundle_bytes: int
    seconds: float
    sampled_bytes: int


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a bundle will be: its estimate, and the detail of each log by its path, None where the size does not choose it."""

    estimate: Estimate
    details: dict[str, Detail] | None


def foreseen(
    tree: "Tree", wanted: "Callable[[CollectedEntry], FactsWanted]", max_size: int | None, max_rate: int | None
) -> Foreseen:
    """Foresee the bundle of a tree, of whose logs this is `wanted`. Raises UsageError where `max_size` bytes are too few."""
    weights, indexes = weigh(_logs(tree), wanted), IndexWeights()
    files, total, log_bytes = 0, 0, 0
    around = float(EMPTY_BYTES)
    for entry in tree.entries():
        if entry.left_out is not None:
            continue
        files += 1
        total += entry.entry.size_in_bytes
        if entry.is_log:
            log_bytes += entry.entry.size_in_bytes
            around += _records(entry, wanted(entry), weights)
        else:
            around += SMALL_FILE_BYTES
            if entry.name is not None and entry.name.kind in INDEXES:
                indexes.add(entry)
    around += indexes.others
    weighed = ((entry, _with_indexes(entry, weights.of(entry, wanted(entry)), indexes)) for entry in _logs(tree))
    if max_size is None:
        details = None
        facts = sum(weight.blocks if may_be_in_blocks(entry, wanted(entry)) else weight.batches for entry, weight in weighed)
    else:
        details, facts = chosen(weighed, max_size - around)
        if around + facts > max_size:
            hint = f"give --max-size {size(int(around + facts))} or more, or --topic to take fewer logs"
            raise UsageError(f"the bundle would have about {size(int(around + facts))}, also with blocks of all logs", hint=hint)
    seconds = weights.seconds * log_bytes / weights.sampled_bytes if weights.sampled_bytes else 0.0
    seconds = seconds if max_rate is None else max(seconds, total / max_rate)
    return Foreseen(Estimate(files, total, int(around + facts), seconds, weights.sampled_bytes), details)


def _logs(tree: "Tree") -> "Iterator[CollectedEntry]":
    return (entry for entry in tree.entries() if entry.left_out is None and entry.is_log)


def _with_indexes(entry: "CollectedEntry", weight: Weight, indexes: IndexWeights) -> Weight:
    """A log's weight with that of its indexes, which stay behind where blocks are taken."""
    of_indexes = indexes.of(entry)
    return Weight(weight.batches + of_indexes, weight.blocks + (of_indexes if weight.blocks == weight.batches else 0.0))


def _records(entry: "CollectedEntry", wanted: "FactsWanted", weights: Weights) -> float:
    """What the batches take that are asked for whole, by how many of the log's offsets these are."""
    if not wanted.records or entry.name is None or entry.name.offset is None:
        return 0.0
    rates, log_size = weights.rates_of(entry), entry.entry.size_in_bytes
    start = entry.name.offset
    end = min(believed_to(start, entry.behind), start + int(rates.offsets * log_size) if entry.behind is None else entry.behind)
    offsets = sum(max(min(end, until) - max(start, first), 0) for first, until in wanted.records)
    return rates.packed * log_size * offsets / max(end - start, 1)
