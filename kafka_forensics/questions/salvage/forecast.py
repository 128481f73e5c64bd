"""What a salvage of one partition would lose, by its own choice of pieces, with nothing written: weighed against elections."""

from collections.abc import Sequence
from itertools import product, starmap

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.judging.partitions import PartitionResult
from kafka_forensics.model.results import Read
from kafka_forensics.questions.plan import Planned, SalvageForecast
from kafka_forensics.questions.salvage.choosing import Chooser, SalvageOptions
from kafka_forensics.questions.salvage.manifest import RefusedError
from kafka_forensics.questions.salvage.slices import Source
from kafka_forensics.replication.planner import losses_without
from kafka_forensics.rereading.reader import LogReader


def forecast(
    copies: Sequence[tuple[ReplicaPlan, Replica]], planned: Planned, result: PartitionResult, reader: LogReader
) -> SalvageForecast | None:
    """The losses of a salvage with the options that it needs, and the recommended broker preferred; None: it is refused."""
    read = [(plan, replica) for plan, replica in copies if replica.read is not Read.NONE]
    sources = [Source.of(plan, replica, result.findings, deep=False) for plan, replica in read]
    preferred = (None,) if planned.plan.contested_by is not None else (None, str(planned.plan.recommended))
    for options in starmap(SalvageOptions, product(preferred, (False, True))):
        try:
            lineage = Chooser(options).choose(sources, planned, result, reader).lineage
        except (RefusedError, SourceError):
            continue
        pieces = [(piece.copy, piece.start, piece.end) for piece in lineage.pieces]
        losses = losses_without(planned.given, planned.plan.truncate_by, pieces, lineage.log_start_offset)
        return SalvageForecast(losses, options.words)
    return None
