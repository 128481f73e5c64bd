"""Makes docs/facts.md from the declared schemas: `python -m lab.facts_page > docs/facts.md`."""

import sys
from typing import Final

from kafka_forensics.model.schemas import CHANGES_FACT, FACT_SCHEMA_VERSION, FACTS, SNAPSHOT_FACTS, about

_PREFACE: Final = """# Facts

This tool reads all input into the tables below, and derives every finding from them. They are the same in Python
(`kafka_forensics.scan(paths).facts("batches")`) and in the files of `kafka-forensics export PATH... --output DIR`. The module
`kafka_forensics/model/schemas.py` declares the schemas, and this page is made from it. The metadata of every schema and file has
version {version} (`kf.schema_version`). Versions with the same first number only add columns. [sql.md](sql.md) has queries for
these tables.

- **Names** are Kafka's. `last_offset` is inclusive. Ends, high watermarks and every `end` are exclusive. The text of commands names
  the first and the last of a range: offsets 300 to 369 are [300, 370).
- **Times** are timestamps in UTC with milliseconds, as stored in the evidence. A time is null if Kafka
  stored -1 (none), or if the stored number is outside the calendar: before 3 January of the year 1 or after
  30 December 9999. Damage and hostile clients cause such numbers; `dump` shows the stored number.
- **-1** means "none" in other columns, as in Kafka's bytes. The line of each column explains null.
- **`broker`** is text: the id of a broker, or the name you gave it. `node_id` is always the broker's number. It
  joins with `leader`, `isr`, `elr` and `replica_assignment`: `array_contains(isr, node_id)`. It is null for remote stores, and if
  neither a numeric name nor a `meta.properties` contains it. `log_dir` is the directory as given in the command.
- **Payloads** are null unless you request them with `facts(name, payloads=True)` or `--show-payloads`: keys, values and headers of
  records, metadata that clients store with their offsets, and metadata of remote segments. Their columns, and the lengths of keys
  and values, are always present.
- **A fact is read whole or not at all.** If a file of this fact was removed or changed since the scan,
  `facts(name)` raises `kafka_forensics.errors.IncompleteError`, which names the file. `allow_incomplete=True` returns the remaining
  rows and lists the file in `incomplete`. Other files may change: a running broker writes its checkpoints every few seconds.
- **Unread input** has rows only in `incomplete`, which every export has. If a table has no rows of a replica, check `incomplete`:
  the replica has no rows only if `incomplete` does not name it. In `replicas`, numbers of unread logs are null.
- **Bad bytes** are rows of `spans`, never an error. The rows of `spans` cover every file, including bytes outside batches.
- **Text that is not UTF-8** is escaped: `\\udcff` for a byte 0xff in a file name.

`kafka-forensics export` writes the tables as Parquet files, Delta or Iceberg tables. [datasets.md](datasets.md) shows how to read
them.

## The tables
"""

_SNAPSHOTS: Final = """
## Over several snapshots

`kafka_forensics.scan_snapshots(root).facts(name)` returns every table above for all snapshots together. The first column is
`snapshot`, the snapshot's name. It also has this table:
"""


def page() -> str:
    """The page as Markdown."""
    parts = [_PREFACE.format(version=FACT_SCHEMA_VERSION)]
    for fact in (*FACTS.values(), *SNAPSHOT_FACTS.values()):
        if fact is CHANGES_FACT:
            parts.append(_SNAPSHOTS)
        parts.append(f"\n### {fact.name}\n\n{fact.about}\n\n| column | type | null | meaning |\n|---|---|---|---|\n")
        for field in fact.schema:
            kind = str(field.type).replace(" not null", "")
            parts.append(f"| `{field.name}` | {kind} | {'yes' if field.nullable else ''} | {about(field)} |\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
