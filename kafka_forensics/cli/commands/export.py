"""`export`: every fact and finding as a snapshot of a dataset of Parquet files, Delta tables or Iceberg tables."""

from threading import Lock
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec import Struct

from kafka_forensics.cli import options
from kafka_forensics.cli.outputs.rows import AnswerList
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, open_output, say, screen_of
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions, without_secrets
from kafka_forensics.model.findings import without_payloads
from kafka_forensics.model.json_objects import attributes

if TYPE_CHECKING:
    from kafka_forensics.evidence.inputs import Inputs
    from kafka_forensics.export.datasets import Dataset, ExportOrder
    from kafka_forensics.export.facts.facts import FactReader
    from kafka_forensics.export.opening import SnapshotOptions


FACT_NAMES: Final = (
    "batches",
    "records",
    "spans",
    "index_entries",
    "epoch_entries",
    "producer_states",
    "checkpoints",
    "control_records",
    "transactions",
    "metadata_history",
    "group_offsets",
    "remote_segments",
    "remote_events",
    "replicas",
    "findings",
    "incomplete",
)
FACTS_ABOUT_RECORDS: Final = frozenset({"spans", "transactions", "replicas", "findings"})
"""Facts that contain findings about records, for which a scan decodes them."""
COLUMNS: Final = attributes("dataset=fact rows files bytes=size_in_bytes")

Directory = Annotated[
    str,
    typer.Option(
        "--output",
        metavar="DIR",
        help="An empty or new directory, or a URI such as s3://bucket/export; with --append an existing dataset. With --engine"
        " spark, every worker must reach it.",
    ),
    options.OutputMark("any"),
]
FactNames = Annotated[
    list[str] | None,
    options.choice(
        "--fact",
        "fact",
        FACT_NAMES,
        f"Only this fact; repeatable [default: all]. {', '.join(FACT_NAMES[:-1])} or {FACT_NAMES[-1]}.",
        "NAME",
    ),
]
AllowIncomplete = Annotated[
    bool,
    typer.Option(
        "--allow-incomplete",
        help="Write _SUCCESS even if some input could not be read; the status is still 3.",
        rich_help_panel=options.OUTPUT,
    ),
]
TABLE_FORMATS: Final = ("parquet", "delta", "iceberg")
Append = Annotated[
    bool,
    typer.Option("--append", help="Add a snapshot to the dataset; replace one of the same name."),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="The cluster of the snapshot [default: its id].",
        rich_help_panel=options.OUTPUT,
    ),
]
Snapshot = Annotated[
    str | None,
    typer.Option(
        "--snapshot",
        metavar="NAME",
        help="The name of the snapshot, e.g. 2026-03-01 [default: 1].",
        rich_help_panel=options.OUTPUT,
    ),
]
PartitionBy = Annotated[
    str | None,
    options.choice("--partition-by", "partitioning", ("topic",), "topic: one directory for each topic.", "KEY", options.OUTPUT),
]
TableFormatName = Annotated[
    str | None,
    options.choice(
        "--table-format",
        "table format",
        TABLE_FORMATS,
        "parquet, or tables: delta or iceberg (require the extra `lakehouse`) [default: parquet].",
        "FORMAT",
        options.OUTPUT,
    ),
]
IcebergCatalog = Annotated[
    str | None,
    typer.Option(
        "--iceberg-catalog",
        metavar="NAME",
        help="A catalogue in PyIceberg's configuration [default: an SQLite file in the dataset].",
        rich_help_panel=options.OUTPUT,
    ),
]
IcebergNamespace = Annotated[
    str | None,
    typer.Option(
        "--iceberg-namespace",
        metavar="NAME",
        help="The namespace of the tables [default: kafka_forensics].",
        rich_help_panel=options.OUTPUT,
    ),
]


class DatasetOptions(Struct, frozen=True, kw_only=True):
    """The snapshot that is written, and the form of its dataset."""

    append: Append = False
    cluster: Cluster = None
    snapshot: Snapshot = None
    partition_by: PartitionBy = None
    table_format: TableFormatName = None
    iceberg_catalog: IcebergCatalog = None
    iceberg_namespace: IcebergNamespace = None

    def snapshot_options(self) -> "SnapshotOptions":
        """The options as `export.opening` takes them. Raises UsageError for options that contradict each other."""
        from kafka_forensics.export.opening import SnapshotOptions

        if self.partition_by is not None and self.table_format not in (None, "parquet"):
            raise UsageError(f"--partition-by does not apply to {self.table_format} tables", hint="leave one of the two out")
        for name, value in (("--iceberg-catalog", self.iceberg_catalog), ("--iceberg-namespace", self.iceberg_namespace)):
            if value is not None and self.table_format != "iceberg":
                raise UsageError(f"{name} requires --table-format iceberg", hint="add --table-format iceberg")
        return SnapshotOptions(
            self.cluster,
            self.snapshot,
            self.append,
            self.table_format or TABLE_FORMATS[0],
            self.partition_by is not None,
            self.iceberg_catalog,
            self.iceberg_namespace,
        )


@options.expand_option_groups
def export(
    paths: options.Paths,
    output: Directory,
    selection: options.BrokerSelection,
    reading: options.ReadOptions,
    *,
    fact: FactNames = None,
    engine: options.EngineOptions,
    format_name: options.Format = "text",
    fail_on: options.FailOn = "none",
    deep: options.Deep = None,
    allow_incomplete: AllowIncomplete = False,
    dataset: DatasetOptions,
    show_payloads: options.ShowPayloads = False,
    console: options.VerboseConsoleOptions,
) -> int:
    """Write every fact and finding as Parquet files: batches, records, spans, indexes, transactions, replicas and more.

    The files are one snapshot of a dataset, `cluster=NAME/snapshot=NAME/FACT/part-*.parquet`. It appears when it is complete.
    DuckDB, Spark, Polars, pandas and PyArrow read all snapshots together (docs/datasets.md). `manifest.json` names every file
    with its rows, bytes and SHA-256. The fact `incomplete` lists unread inputs; `_INCOMPLETE` then replaces `_SUCCESS`.
    --show-payloads adds keys and values of records.
    """
    snapshot_options = dataset.snapshot_options()
    names = [name for name in FACT_NAMES if not fact or name in fact]
    if deep is None and fail_on == "none" and FACTS_ABOUT_RECORDS.isdisjoint(names):
        deep = False  # no fact would show a finding about records
    scan_options = reading.scan_options(selection, deep=deep)
    screen = screen_of(console)
    on_spark = engine.on_spark()

    from kafka_forensics.evidence.inputs import gather
    from kafka_forensics.export.datasets import ExportOrder
    from kafka_forensics.export.opening import open_export

    if on_spark:
        from kafka_forensics.spark.sessions import require_pyspark

        require_pyspark()
        paths, scan_options = without_secrets(paths, scan_options)
    inputs = gather(paths, scan_options, ids_later=on_spark)
    with open_export(output, scan_options.storage_options, snapshot_options, inputs) as opened:
        order = ExportOrder(opened, names, show_payloads, allow_incomplete)
        run = _run_on_spark if on_spark else _run
        reader, datasets = run(inputs, scan_options, order, engine, screen)
    with open_output(None, color=console.color) as to:
        AnswerList(COLUMNS, [*COLUMNS], [*COLUMNS][1:], _cells).write(datasets, format_name, to)
    _print_summary(reader, order, screen, dataset)
    return options.exit_status(reader.result, fail_on)


def _run(
    inputs: "Inputs", scan_options: ScanOptions, order: "ExportOrder", _: options.EngineOptions, screen: Screen
) -> "tuple[FactReader, list[Dataset]]":
    from kafka_forensics.export.datasets import export_facts
    from kafka_forensics.export.facts.facts import LOG_FACTS, scan_for_facts
    from kafka_forensics.export.views import finding_text

    passes = 1 + sum(name in LOG_FACTS for name in order.names)
    with Progress(screen) as progress:
        reader = scan_for_facts(inputs, scan_options, finding_text, lambda done, total: progress(done, total * passes))
        reader.payloads = order.payloads
        if not order.payloads:
            reader.result.findings = [without_payloads(finding) for finding in reader.result.findings]
        total = sum(plan.bytes for plan in reader.inputs.replicas)
        done, lock = total, Lock()

        def add_to_progress(count: int) -> None:
            nonlocal done
            with lock:
                done += count
                progress(min(done, total * passes), total * passes)

        reader.passed = add_to_progress
        datasets = export_facts(reader, order)
    reader.result.incomplete = reader.unread_inputs()
    return reader, datasets


def _run_on_spark(
    inputs: "Inputs", scan_options: ScanOptions, order: "ExportOrder", engine: options.EngineOptions, screen: Screen
) -> "tuple[FactReader, list[Dataset]]":
    from kafka_forensics.cli.spark_session import running_session
    from kafka_forensics.spark.export_job import export_on_spark

    with running_session(screen, engine, scan_options.jobs) as spark:
        return export_on_spark(spark, inputs, scan_options, order)


def _cells(dataset: "Dataset") -> list[str]:
    return [dataset.fact, str(dataset.rows), str(dataset.files), str(dataset.size_in_bytes)]


def _print_summary(reader: "FactReader", order: "ExportOrder", screen: Screen, dataset: DatasetOptions) -> None:
    from kafka_forensics.cli.outputs.words import incomplete_lines

    lines = []
    if dataset.append and not screen.quiet:
        label = order.opened.label
        lines.append(f"{'replaced' if order.opened.replaced else 'added'} snapshot {label.snapshot} of cluster {label.cluster}")
    if not reader.result.totals.partitions:
        lines.append("no partition was found in these paths")
    if not screen.quiet and not reader.payloads and {"records", "group_offsets"} & set(order.names):
        lines.append("keys, values, headers and metadata of clients with offsets are left out; --show-payloads exports them")
    if reader.unread_inputs() and not order.allow_incomplete:
        lines.append("the snapshot is marked _INCOMPLETE: export again once everything can be read, or add --allow-incomplete")
    say(screen, [*lines, *incomplete_lines(reader.result)])
