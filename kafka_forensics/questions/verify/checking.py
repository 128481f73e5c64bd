"""The promises of a plan or a salvage, compared with copies taken after the brokers started again."""

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.inputs import Inputs, gather
from kafka_forensics.evidence.options import ScanOptions, fits
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.offset_ranges import Ranges, normalised
from kafka_forensics.model.pseudonyms import PSEUDONYM, NameKind
from kafka_forensics.model.results import ScanResult
from kafka_forensics.questions.verify import planned as of_plan, salvaged as of_salvage
from kafka_forensics.questions.verify.documents import PlanDocument, SalvageManifest
from kafka_forensics.questions.verify.promises import Outcome, Verified
from kafka_forensics.questions.verify.records_back import LostRecords, check_kept
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.judging.partitions import PartitionResult
from kafka_forensics.scanning.rereading.reader import LogReader
from kafka_forensics.scanning.witnesses.witnesses import Witnesses, read_witnesses
from kafka_forensics.storage.bundles import BundleSource

_Look = Callable[[TopicPartition, list[Replica], LogReader, PartitionResult], list[Verified]]


class VerifyResult(Struct):
    """Every promise of the selected partitions, in their order."""

    promises: list[Verified] = field(default_factory=list)
    partitions: int = 0
    without_promise: int = 0
    """Partitions without promises: the plan has no election, or not that of the requested broker, or they were not salvaged."""
    lost: dict[TopicPartition, Ranges] = field(default_factory=dict)
    """Offsets that no copy held when the plan or salvage was made."""
    given_up: dict[TopicPartition, Ranges] = field(default_factory=dict)
    """Offsets that the planned elections lose, in partitions without recovered records."""
    result: ScanResult | None = None

    def count(self, outcome: Outcome) -> int:
        """How many promises have this outcome."""
        return sum(promise.outcome is outcome for promise in self.promises)


class ExecutedPlan(Struct, frozen=True):
    """How a plan was carried out: `elected` is the broker that was made leader, None for the recommended one; `recovered` are the
    records that were produced again, by topic and partition."""

    elected: str | None = None
    recovered: Mapping[TopicPartition, LostRecords] = field(default_factory=dict)


def verify(
    paths: list[str],
    document: PlanDocument | SalvageManifest,
    options: ScanOptions,
    executed: ExecutedPlan,
    progress: Progress | None = None,
) -> VerifyResult:
    """Compare the promises of a plan, or of a salvage, with newer copies at `paths`.

    Raises UsageError for invalid paths, for a broker unknown to the plan, and for options of a plan with a salvage.
    """
    inputs = gather(paths, options)
    if isinstance(document, PlanDocument):
        return _of_plan(inputs, document, options, executed, progress)
    if executed != ExecutedPlan():
        raise UsageError("--elected and --recovered require a plan, and this is the manifest of a salvage", hint="leave them out")
    return _of_salvage(inputs, document, options, progress)


def _of_plan(
    inputs: Inputs, document: PlanDocument, options: ScanOptions, executed: ExecutedPlan, progress: Progress | None
) -> VerifyResult:
    wanted = {(row.topic, row.partition): row for row in document.partitions if _is_selected(row.topic, row.partition, options)}
    of_plan.check_elected(wanted.values(), executed.elected)
    elections = {key: election for key, row in wanted.items() if (election := row.election(executed.elected)) is not None}
    plans = {id(plan.context): plan for plan in inputs.replicas}
    for key, election in elections.items():
        if (lost := executed.recovered.get(key)) is not None:
            check_kept(*key, election.broker, lost)
    _require_one_cluster(document, inputs)
    witnesses = read_witnesses(inputs)

    def look(key: TopicPartition, replicas: list[Replica], reader: LogReader, result: PartitionResult) -> list[Verified]:
        promises = of_plan.promised(wanted[key], elections[key], replicas, reader, result)
        if (lost := executed.recovered.get(key)) is not None:
            read = [(replica, plans[id(replica.context)]) for replica in replicas]
            promises.append(of_plan.back_on_leader(wanted[key], elections[key], read, lost, witnesses.transaction_log))
        return promises

    recovered = {key: lost for key, lost in executed.recovered.items() if _is_selected(*key, options)}
    without = {key: of_plan.without_copies(wanted[key], election, recovered.get(key)) for key, election in elections.items()}
    result = _checked(inputs, options, look, without, len(wanted.keys() | recovered.keys()), progress, witnesses)
    result.promises += [of_plan.without_plan(*key, lost) for key, lost in recovered.items() if key not in elections]
    result.promises.sort(key=lambda promise: (promise.topic, promise.partition))
    result.lost = {key: normalised(row.held_by_no_copy) for key, row in wanted.items() if row.held_by_no_copy}
    result.given_up = {
        key: normalised((loss.offset_start, loss.offset_end) for loss in election.losses)
        for key, election in elections.items()
        if election.losses and key not in executed.recovered
    }
    return result


def _require_one_cluster(document: PlanDocument, inputs: Inputs) -> None:
    """Raise UsageError for copies of another cluster than the plan's, if both cluster ids are known and no pseudonyms."""
    ids = {log_dir.meta.cluster_id for log_dir in inputs.log_dirs if log_dir.meta is not None} - {None}
    is_redacted = any(isinstance(source, BundleSource) and source.about.redaction is not None for source in inputs.sources)
    pseudonyms = (PSEUDONYM.fullmatch(cluster_id) for cluster_id in document.cluster_ids)
    is_redacted = is_redacted or any(match is not None and match["kind"] == NameKind.CLUSTER for match in pseudonyms)
    if ids and document.cluster_ids and not is_redacted and ids.isdisjoint(document.cluster_ids):
        copied = ", ".join(sorted(map(str, ids)))
        text = f"the plan is for cluster {', '.join(document.cluster_ids)}, but these copies are from {copied}"
        raise UsageError(text, hint="give copies of the cluster in the plan, or a plan of this cluster")


def _of_salvage(inputs: Inputs, manifest: SalvageManifest, options: ScanOptions, progress: Progress | None) -> VerifyResult:
    wanted = {(row.topic, row.partition): row for row in manifest.partitions if _is_selected(row.topic, row.partition, options)}
    refused = sum(_is_selected(row.topic, row.partition, options) for row in manifest.refused)
    plans = {id(plan.context): plan for plan in inputs.replicas}

    def look(key: TopicPartition, replicas: list[Replica], _reader: LogReader, result: PartitionResult) -> list[Verified]:
        return of_salvage.promised(wanted[key], [(replica, plans[id(replica.context)]) for replica in replicas], result)

    without = {key: of_salvage.without_copies(row) for key, row in wanted.items()}
    result = _checked(inputs, options, look, without, len(wanted) + refused, progress)
    gaps = {
        key: normalised((gap.offset_start, gap.offset_end) for gap in row.gaps if gap.offset_end is not None)
        for key, row in wanted.items()
    }
    result.lost = {key: lost for key, lost in gaps.items() if lost}
    return result


def _checked(
    inputs: Inputs,
    options: ScanOptions,
    look: _Look,
    without: dict[TopicPartition, list[Verified]],
    partitions: int,
    progress: Progress | None,
    witnesses: Witnesses | None = None,
) -> VerifyResult:
    """Check every promise; `without` has those of each partition as they are without a copy of it."""
    inputs.replicas = [plan for plan in inputs.replicas if plan.context.topic_partition in without]
    by_partition = dict(without)

    def look_at(replicas: list[Replica], reader: LogReader, result: PartitionResult) -> None:
        key = replicas[0].context.topic, replicas[0].context.partition
        if key in without:
            by_partition[key] = look(key, replicas, reader, result)

    result = scan_inputs(inputs, options, progress, look_at, witnesses)
    promises = [promise for key in sorted(by_partition) for promise in by_partition[key]]
    return VerifyResult(promises, partitions, partitions - len(without), result=result)


def _is_selected(topic: str, partition: int, options: ScanOptions) -> bool:
    return topic != CLUSTER_METADATA_TOPIC and fits((topic, partition), options)
