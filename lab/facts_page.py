"""Makes docs/facts.md from the declared schemas: `python -m lab.facts_page > docs/facts.md`."""

import sys
from typing import Final

from kafka_forensics.model.schemas import CHANGES_FACT, FACT_SCHEMA_VERSION, FACTS, SNAPSHOT_FACTS, about

_PREFACE: Final = """# Facts

Everything this tool reads becomes one of the tables below before anything is concluded from it. They are the same in Python
(`kafka_forensics.scan(paths).facts("batches")`) and in what `kafka-forensics export PATH... --output DIR` writes. The schemas are
declared in `kafka_forensics/model/schemas.py`, and this page is made from them. Version {version} stands in the metadata of every
schema and file (`kf.schema_version`); columns are only added while the first number stays. [sql.md](sql.md) has queries for these
tables.

- Names are Kafka's. `last_offset` is inclusive; ends, high watermarks and whatever is called `end` are exclusive. What commands
  say to people, in sentences and tables, names the first and the last of a range: offsets 300 to 369 are [300, 370).
- Times are timestamps in UTC, of milliseconds, as the evidence has them; nothing is derived from them. A time is null where Kafka
  stored -1 (none), and where the stored number is outside the calendar: before 3 January of the year 1 or after
  30 December 9999. Damage and hostile clients leave such numbers; `dump` shows the stored number.
- -1 is "none" in other columns where Kafka's own bytes say so. Null is what the column's line says.
- `broker` is text: brokers have ids, or the names they were given. `node_id` is the broker's number, whatever name it was given, so
  it joins with `leader`, `isr`, `elr` and `replica_assignment`: `array_contains(isr, node_id)`. It is null where neither a numeric
  name nor a `meta.properties` says it, and for remote stores. `log_dir` is the directory as it was named in the command.
- Keys, values and headers of records, and what clients keep with their offsets or plugins with remote segments, are null unless
  requested: `facts(name, payloads=True)`, `--show-payloads`. Their columns, and the lengths of keys and values, are always there.
- A fact that is read after a scan is read whole or not at all: if a file that it is read from was removed or changed since,
  `facts(name)` raises `kafka_forensics.errors.IncompleteError`, which names it; `allow_incomplete=True` gives what is left and
  lists the file in `incomplete`. Other files may change: a running broker writes its checkpoints every few seconds.
- Unread input has rows only in `incomplete`, which every export has: a table without rows of a replica means that
  the replica has none only if `incomplete` does not name it. In `replicas`, what was not read is null.
- Bad bytes are rows of `spans`, never an error: its rows cover every file, so bytes outside batches can be queried, too.
- Text that UTF-8 cannot hold is spelled out, `\\udcff` for a byte 0xff in a file name.

`kafka-forensics export` writes them as Parquet files, Delta or Iceberg tables; [datasets.md](datasets.md) shows how to read them.

## The tables
"""

_SNAPSHOTS: Final = """
## Over several snapshots

`kafka_forensics.scan_snapshots(root).facts(name)` gives every table above for all snapshots together, with the snapshot's name in a
column `snapshot` before the others, and also this table:
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
