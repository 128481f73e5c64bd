"""A scan's answer in every format of the contract."""

from kafka_forensics.cli.rows import tsv_lines
from kafka_forensics.cli.streams import Destination
from kafka_forensics.export import json_document
from kafka_forensics.export.json_document import Shape
from kafka_forensics.model.results import ScanResult


def write_result(
    result: ScanResult, format_name: str, to: Destination, *, verbose: bool = False, shape: Shape | None = None
) -> None:
    """Write `result` to `to` in one of the formats of `options.FORMATS`; `verbose` leaves nothing out of a table.

    `shape` is that of JSON.
    """
    match format_name:
        case "table":
            from kafka_forensics.cli.output_table import write_table

            write_table(result, to, verbose=verbose)
        case "tsv":
            from kafka_forensics.cli.output_words import gravity

            gravest_first = sorted(result.findings, key=gravity)
            to.stream.writelines(tsv_lines(json_document.FINDING_COLUMNS, map(json_document.finding_object, gravest_first)))
        case "json":
            to.stream.writelines(json_document.document(result, shape))
        case "jsonl":
            to.stream.writelines(json_document.lines(result, shape))
        case "markdown":
            from kafka_forensics.cli.output_markdown import report_lines

            to.stream.writelines(report_lines(result))
        case _:
            raise AssertionError(format_name)
