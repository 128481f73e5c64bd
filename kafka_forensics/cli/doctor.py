"""`doctor`: does this installation work, how fast is it, and what is missing for what."""

import sys

from kafka_forensics.cli import options
from kafka_forensics.cli.choices import choose
from kafka_forensics.cli.streams import destination
from kafka_forensics.evidence.options import keep_code_below


def doctor(format_name: options.Format = None, cache_dir: options.CacheDir = None, no_color: options.NoColor = False) -> int:
    """Java, Spark, codecs, CRC speed, storage back ends: what works, what is missing and how to get it.

    Ends with status 0 if the local engine works; Java and Spark are not needed for it.
    """
    from kafka_forensics.cli.doctor_checks import run_checks
    from kafka_forensics.cli.rows import write_rows

    to = destination(sys.stdout, no_color=no_color)
    wanted = choose("format", format_name or ("table" if to.stream.isatty() else "tsv"), options.FORMATS)
    keep_code_below(cache_dir)
    checks = run_checks()
    rows = [{"check": check.name, "status": check.status, "detail": check.detail} for check in checks]
    write_rows(["check", "status", "detail"], rows, wanted, to)
    return int(any(check.needed and check.status != "ok" for check in checks))
