"""`export`: every fact and finding as Parquet datasets, or as a snapshot added to such, to Delta tables or to Iceberg tables."""

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.commands.scan import exit_status
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.outputs.rows import Listing
from kafka_forensics.cli.streams import Destination, chosen_format, open_output, say, screen_of
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.options import ScanOptions, without_secrets
from kafka_forensics.model.findings import without_payloads
from kafka_forensics.model.json_objects import attributes

if TYPE_CHECKING:
    from kafka_forensics.export.append import AddedSnapshot, Opened
    from kafka_forensics.export.datasets import Dataset, ExportOrder
    from kafka_forensics.export.facts.facts import FactReader


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
OF_RECORDS: Final = frozenset({"spans", "transactions", "replicas", "findings"})
"""Facts in which shows what a scan finds inside of records, unless it only judges batches."""
COLUMNS: Final = attributes("dataset=fact rows files bytes=size_in_bytes")

Directory = Annotated[
    str,
    typer.Option(
        "--output",
        metavar="DIR",
        help="An empty or new directory for the datasets, never inside an input, or a URI such as s3://bucket/export; with --append"
        " the dataset to add to. With --engine spark every worker must see it.",
    ),
    options.Written("any"),
]
FactNames = Annotated[
    list[str] | None,
    typer.Option(
        "--fact",
        metavar="NAME",
        autocompletion=lambda: list(FACT_NAMES),
        help=f"Only this fact; may be given again [default: all]. {', '.join(FACT_NAMES[:-1])} or {FACT_NAMES[-1]}.",
    ),
]
AllowIncomplete = Annotated[
    bool,
    typer.Option("--allow-incomplete", help="Write _SUCCESS though some input could not be read; the status is 3 all the same."),
]
ListFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        autocompletion=lambda: list(options.FORMATS),
        help="Of the list of datasets that is printed at the end.",
    ),
]
TABLE_FORMATS: Final = ("parquet", "delta", "iceberg")
Append = Annotated[
    bool,
    typer.Option("--append", help="Add a snapshot to the dataset at --output, or begin one; one of the same name is replaced."),
]
Cluster = Annotated[str | None, typer.Option("--cluster", metavar="NAME", help="With --append: of which cluster the snapshot is.")]
Snapshot = Annotated[
    str | None, typer.Option("--snapshot", metavar="NAME", help="With --append: what the snapshot is called, e.g. 2026-03-01.")
]
TableFormatName = Annotated[
    str | None,
    typer.Option(
        "--table-format",
        metavar="FORMAT",
        autocompletion=lambda: list(TABLE_FORMATS),
        help="With --append: parquet (a directory a snapshot), delta or iceberg (tables, which require the extra lakehouse)"
        " [default: parquet].",
    ),
]
IcebergCatalog = Annotated[
    str | None,
    typer.Option(
        "--iceberg-catalog",
        metavar="NAME",
        help="With --table-format iceberg: a catalogue by its name in PyIceberg's configuration [default: an SQLite file in the"
        " dataset].",
    ),
]
IcebergNamespace = Annotated[
    str | None,
    typer.Option(
        "--iceberg-namespace",
        metavar="NAME",
        help="With --table-format iceberg: where in the catalogue the tables are [default: kafka_forensics].",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adding:
    """Whether a snapshot is added to a dataset, which, and how it is kept."""

    append: Append = False
    cluster: Cluster = None
    snapshot: Snapshot = None
    table_format: TableFormatName = None
    iceberg_catalog: IcebergCatalog = None
    iceberg_namespace: IcebergNamespace = None

    def check(self) -> None:
        """Raise UsageError for options that do not go together."""
        given = {
            "--cluster": self.cluster,
            "--snapshot": self.snapshot,
            "--table-format": self.table_format,
            "--iceberg-catalog": self.iceberg_catalog,
            "--iceberg-namespace": self.iceberg_namespace,
        }
        if not self.append:
            for name, value in given.items():
                if value is not None:
                    raise UsageError(f"{name} goes with --append", hint="add --append")
            return
        for name in ("--cluster", "--snapshot"):
            if given[name] is None:
                raise UsageError(f"--append needs {name}", hint=f"name it, for example {_NAMED[name]}")
        if choose("table format", self.table_format or TABLE_FORMATS[0], TABLE_FORMATS) != "iceberg":
            for name in ("--iceberg-catalog", "--iceberg-namespace"):
                if given[name] is not None:
                    raise UsageError(f"{name} goes with --table-format iceberg", hint="add --table-format iceberg")

    def snapshot_added(self) -> "AddedSnapshot | None":
        """What `check` has let pass."""
        from kafka_forensics.export.append import AddedSnapshot

        if not self.append:
            return None
        assert self.cluster is not None
        assert self.snapshot is not None
        table_format = self.table_format or TABLE_FORMATS[0]
        return AddedSnapshot(self.cluster, self.snapshot, table_format, self.iceberg_catalog, self.iceberg_namespace)


_NAMED: Final = {"--cluster": "--cluster payments", "--snapshot": "--snapshot 2026-03-01"}


@options.flat
def export(
    paths: options.Paths,
    output: Directory,
    selection: options.BrokerSelection,
    reading: options.Reading,
    *,
    fact: FactNames = None,
    where: options.Workplace,
    format_name: ListFormat = None,
    fail_on: options.FailOn = "none",
    as_of: options.AsOf = None,
    deep: options.Deep = None,
    allow_incomplete: AllowIncomplete = False,
    adding: Adding,
    show_payloads: options.ShowPayloads = False,
    printing: options.VerbosePrinting,
) -> int:
    """Every fact and finding as Parquet datasets: batches, records, spans, indexes, transactions, replicas and more.

    `_SUCCESS` is written last, `_manifest.json` names every file with its rows, bytes and SHA-256. What could not be read is in the
    dataset `incomplete`, and `_INCOMPLETE` stands instead of `_SUCCESS` unless --allow-incomplete is given. Keys and values of
    records stay out unless --show-payloads is given.

    With --append all of it becomes one snapshot of a dataset of many: the directory `cluster=NAME/snapshot=NAME`, which appears as
    a whole, or rows of Delta or Iceberg tables (docs/datasets.md).
    """
    spark = where.on_spark()
    wanted = chosen_format(format_name, None)
    adding.check()
    choose("severity", fail_on, options.FAIL_ON)
    names = [name for name in FACT_NAMES if not fact or name in [choose("fact", given, FACT_NAMES) for given in fact]]
    if deep is None and fail_on == "none" and OF_RECORDS.isdisjoint(names):
        deep = False  # nobody would see what was decoded for
    scan_options = reading.scan_options(selection, deep=deep, as_of=as_of)
    screen = screen_of(printing)

    from kafka_forensics.export.append import opened_export
    from kafka_forensics.export.datasets import ExportOrder

    with opened_export(output, scan_options.storage_options, adding.snapshot_added()) as to_write:
        order = ExportOrder(
            to_write.target, names, to_write.output, show_payloads, allow_incomplete, label=to_write.label, commit=to_write.commit
        )
        if spark:
            reader, datasets = _run_on_spark(paths, scan_options, order, screen, where, quiet=printing.quiet)
        else:
            reader, datasets = _run(paths, scan_options, order, screen, quiet=printing.quiet)
    with open_output(None, color=printing.color) as to:
        Listing(COLUMNS, [*COLUMNS], [*COLUMNS][1:], _cells).write(datasets, wanted, to)
    _say_rest(reader, names, screen, to_write, quiet=printing.quiet)
    return exit_status(reader.result, fail_on)


def _run(
    paths: list[str],
    scan_options: ScanOptions,
    order: "ExportOrder",
    screen: Destination,
    *,
    quiet: bool,
) -> "tuple[FactReader, list[Dataset]]":
    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.export.datasets import export_facts
    from kafka_forensics.export.facts.facts import LOG_FACTS, scan_for_facts
    from kafka_forensics.export.views import words

    passes = 1 + sum(name in LOG_FACTS for name in order.names)
    with Progress(screen, quiet=quiet) as progress:
        reader = scan_for_facts(paths, scan_options, words, lambda done, total: progress(done, total * passes))
        reader.payloads = order.payloads
        if not order.payloads:
            reader.result.findings = [without_payloads(finding) for finding in reader.result.findings]
        total = sum(plan.bytes for plan in reader.inputs.replicas)
        done, lock = total, Lock()

        def passed(count: int) -> None:
            nonlocal done
            with lock:
                done += count
                progress(min(done, total * passes), total * passes)

        reader.passed = passed
        datasets = export_facts(reader, order)
    reader.result.incomplete = reader.gaps()
    return reader, datasets


def _run_on_spark(
    paths: list[str],
    scan_options: ScanOptions,
    order: "ExportOrder",
    screen: Destination,
    where: options.Workplace,
    *,
    quiet: bool,
) -> "tuple[FactReader, list[Dataset]]":
    from kafka_forensics.cli.spark_session import stopping
    from kafka_forensics.evidence.inputs import gather
    from kafka_forensics.spark.export_job import exported
    from kafka_forensics.spark.sessions import require_pyspark

    require_pyspark()
    paths, scan_options = without_secrets(paths, scan_options)
    inputs = gather(paths, scan_options, ids_later=True)
    with stopping(screen, where, scan_options.jobs, quiet=quiet) as spark:
        return exported(spark, inputs, scan_options, order)


def _cells(dataset: "Dataset") -> list[str]:
    return [dataset.fact, f"{dataset.rows:,}", str(dataset.files), f"{dataset.size_in_bytes:,}"]


def _say_rest(reader: "FactReader", names: list[str], screen: Destination, written: "Opened", *, quiet: bool) -> None:
    from kafka_forensics.cli.outputs.words import incomplete_lines

    lines = incomplete_lines(reader.result)
    if not quiet and not reader.payloads and {"records", "group_offsets"} & set(names):
        lines.insert(0, "keys, values, headers and what clients keep with offsets are left out; --show-payloads exports them")
    if not reader.result.totals.partitions:
        lines.insert(0, "no partition was found in these paths")
    if (label := written.label) is not None and not quiet:
        lines.insert(0, f"{'replaced' if written.replaced else 'added'} snapshot {label.snapshot} of {label.cluster}")
    say(screen, lines)
