"""What scripts and notebooks depend on: commands, JSON keys, columns, exit statuses, Python functions, kinds."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import kafka_forensics
from kafka_forensics import errors, spark
from kafka_forensics.analysis.kinds import CATALOGUE
from kafka_forensics.cli import main, options
from kafka_forensics.cli.commands import simulate
from kafka_forensics.cli.commands.export import FACT_NAMES
from kafka_forensics.cli.manual import MANUAL
from kafka_forensics.evidence.options import SharedOptions
from kafka_forensics.export.opening import TABLE_FORMATS
from kafka_forensics.model.changes import SnapshotsResult
from kafka_forensics.model.recovered import RECOVERED_FACT
from kafka_forensics.model.results import ScanResult
from kafka_forensics.model.schemas import FACTS, SNAPSHOT_FACTS
from kafka_forensics.questions.recover import Recovery
from kafka_forensics.spark.data_source import OPTIONS
from kafka_forensics.spark.job import SparkScanResult
from kafka_forensics.storage.bundles import VERSION
from tests.support.json_schemas import json_schema
from tests.support.places import ROOT, SAMPLES

Surface = dict[str, dict[str, list[str]]]
"""Section → name of a command, an object or a table → what it has: options, keys or columns with their types."""
Pairs = Iterator[tuple[str, str]]
"""(name, one thing that it has)."""

SCHEMAS: Final = ("scan", "plan", "compare", "changes", "recover", "salvage")
RESULTS: Final[Mapping[type, str]] = {
    ScanResult: "verdict findings incidents partitions replicas incomplete totals facts lanes to_arrow to_pandas to_json",
    SnapshotsResult: "verdict findings incidents incomplete snapshots changes facts to_arrow to_pandas to_json",
    Recovery: "partitions undecided incomplete",
    SparkScanResult: "dataframe",
}
"""Class of a result → its public names."""
VALUES: Final[Mapping[str, Sequence[str]]] = {
    "scan --format": options.SCAN_FORMATS,
    "plan --format": options.PLAN_FORMATS,
    "--format": options.FORMATS,
    "--fail-on": options.FAIL_ON,
    "--engine": options.ENGINES,
    "--by": options.VIEWS,
    "--color": options.COLOURS,
    "export --fact": FACT_NAMES,
    "export --table-format": TABLE_FORMATS,
    "simulate run": simulate.scenario_names(),
    "simulate check": simulate.protocol_names(),
}
_UNCLEAN: Final = SAMPLES / "unclean-election"
_BROKER: Final = _UNCLEAN / "broker-1"
_PARTITION: Final = ("--topic", "audit", "--partition", "0")
TABLES: Final[Mapping[str, tuple[object, ...]]] = {
    "changes": ("changes", SAMPLES / "healthy", _UNCLEAN),
    "compare": ("compare", _UNCLEAN, *_PARTITION),
    "compare --show-payloads": ("compare", _UNCLEAN, *_PARTITION, "--show-payloads"),
    "doctor": ("doctor",),
    "dump": ("dump", _BROKER, *_PARTITION),
    "dump --explain": ("dump", _BROKER, *_PARTITION, "--explain"),
    "dump --records": ("dump", _BROKER, *_PARTITION, "--records"),
    "dump --records --show-payloads": ("dump", _BROKER, *_PARTITION, "--records", "--show-payloads"),
    **{
        f"dump *{suffix}": ("dump", next((_BROKER / "payments-0").glob(f"*{suffix}")))
        for suffix in (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata")
    },
    **{f"dump {name}": ("dump", _BROKER / name) for name in ("meta.properties", "replication-offset-checkpoint")},
    **{
        f"dump {topic} --records": ("dump", _BROKER, "--topic", topic, "--records")
        for topic in ("__consumer_offsets", "__transaction_state", "__cluster_metadata")
    },
    "epochs": ("epochs", _UNCLEAN),
    "explain": ("explain",),
    "explain KIND": ("explain", "UNCLEAN_LOSS"),
    "find": ("find", _UNCLEAN, *_PARTITION, "--offset", "0"),
    "find --show-payloads": ("find", _UNCLEAN, *_PARTITION, "--offset", "0", "--show-payloads"),
    "groups": ("groups", _UNCLEAN),
    "metadata": ("metadata", _UNCLEAN),
    "plan": ("plan", _UNCLEAN),
    "scan": ("scan", _UNCLEAN),
    "simulate check": ("simulate", "check", "kip-101", "--records", "1", "--max-epoch", "1"),
    "simulate list": ("simulate", "list"),
    "simulate run": ("simulate", "run", "unclean-election"),
    "transactions": ("transactions", _UNCLEAN),
    "verify": ("verify", _UNCLEAN, "--topic", "audit", "--against", ROOT / "tests" / "golden" / "documents" / "plan-1.0.json"),
    "export": ("export", _UNCLEAN, "--output", "NEW"),
    "recover": ("recover", _UNCLEAN, *_PARTITION, "--keep", "1", "--output", "NEW"),
    "salvage": ("salvage", _UNCLEAN, "--topic", "audit", "--prefer-broker", "2", "--output", "NEW"),
}
"""Name of a table → the command line that writes it; `--format tsv` is added, and NEW is a new directory."""


def public_surface(run: Callable[..., tuple[int, str, str]], folder: Path) -> Surface:
    """All sections; `run` runs a command line, which may write to the empty `folder`."""
    statuses = {name: map(str, manual.exit_statuses) for name, manual in MANUAL.items() if name}
    statuses["every command"] = map(str, (main.EXIT_BUG, main.EXIT_INTERRUPTED, main.EXIT_CLOSED_PIPE))
    return {
        "commands and options": _grouped(_options(main.parser(), "kafka-forensics")),
        "values of options": {option: [*values] for option, values in VALUES.items()},
        "exit statuses": {name: [*numbers] for name, numbers in statuses.items()},
        "JSON": _grouped(_keys()),
        "columns of TSV": _grouped(_columns(run, folder)),
        "metrics": _grouped(_metrics(run)),
        "columns of facts": _grouped(_fact_columns()),
        "Python": _grouped(_python()),
        "Spark data source": {"options": [*OPTIONS]},
        "kinds": {"names": [*CATALOGUE]},
        "bundles": {"version": [str(VERSION)]},
    }


def _grouped(pairs: Pairs) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, thing in pairs:
        things = groups.setdefault(name, [])
        if thing not in things:
            things.append(thing)
    return groups


def _options(command: Any, name: str) -> Pairs:
    """Options and arguments of every command."""
    for word, inner in getattr(command, "commands", {}).items():
        yield from _options(inner, f"{name} {word}")
    for parameter in command.params:
        metavar = "" if getattr(parameter, "is_flag", False) else str(parameter.metavar or parameter.name).upper()
        typed = "/".join([*parameter.opts, *parameter.secondary_opts]) if parameter.param_type_name == "option" else ""
        yield name, f"{typed} {metavar}".strip()


def _keys() -> Pairs:
    """Properties of the JSON Schemas with their types, and values of enumerations."""
    for command in SCHEMAS:
        schema = json_schema(command)
        yield from _properties(schema, command)
        for name, definition in schema.get("$defs", {}).items():
            yield from _properties(definition, f"{command} {name}")


def _properties(schema: Any, path: str) -> Pairs:
    yield from ((path, f"= {value}") for value in schema.get("enum", []))
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from _properties(schema[keyword], f"{path}[]")
    for part in (part for keyword in ("anyOf", "oneOf", "allOf", "prefixItems") for part in schema.get(keyword, [])):
        yield from _properties(part, path)
    for name, part in schema.get("properties", {}).items():
        kind = part.get("type", part.get("$ref", part.get("const", "")))
        optional = "" if name in schema.get("required", []) else " optional"
        yield path, f"{name} {'|'.join(kind) if isinstance(kind, list) else kind}{optional}".rstrip()
        yield from _properties(part, f"{path}.{name}")


def _columns(run: Callable[..., tuple[int, str, str]], folder: Path) -> Pairs:
    for name, line in TABLES.items():
        status, out, err = run(*(folder / name if word == "NEW" else word for word in line), "--format", "tsv")
        assert status in (0, 1, 3), err
        yield from ((name, column) for column in out.partition("\n")[0].split("\t"))


def _metrics(run: Callable[..., tuple[int, str, str]]) -> Pairs:
    """Names and labels of the metrics of a scan."""
    for line in run("scan", _UNCLEAN, "--format", "prometheus")[1].splitlines():
        if found := re.fullmatch(r"(\w+)(?:\{(.*)\})? \S+", line):
            labels = " ".join(re.findall(r"(\w+)=", found[2] or ""))
            yield found[1], f"labels {labels}".strip()


def _fact_columns() -> Pairs:
    """Columns of Arrow tables, Parquet files and DataFrames."""
    for fact in (*FACTS.values(), *SNAPSHOT_FACTS.values(), RECOVERED_FACT):
        for column in fact.schema:
            yield fact.name, f"{column.name} {column.type}{'' if column.nullable else ' not null'}"


def _python() -> Pairs:
    """Parameters of the public functions, options that they share, names of results, and errors."""
    for module in (kafka_forensics, spark):
        for name in module.__all__:
            value = getattr(module, name)
            yield module.__name__, name
            parameters = inspect.signature(value).parameters.values() if callable(value) else ()
            yield from ((f"{module.__name__}.{name}", str(parameter)) for parameter in parameters)
    yield from (("shared options", f"{name}: {kind}") for name, kind in SharedOptions.__annotations__.items())
    for result, names in RESULTS.items():
        for name in names.split():
            value = inspect.getattr_static(result, name, None)
            assert value is not None or name in result.__annotations__, name
            is_method = inspect.isfunction(value)
            parameters_text = re.sub(r"kafka_forensics\.[\w.]+\.", "", str(inspect.signature(value))) if is_method else ""
            yield result.__name__, f"{name}{parameters_text}"
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, Exception):
            yield "errors", f"{name} {value.__base__ and value.__base__.__name__}"


def differences(before: Surface, now: Surface) -> tuple[list[str], list[str]]:
    """(what was removed, what was added), as sentences; what changed is in both."""
    old, new = set(_sentences(before)), set(_sentences(now))
    return sorted(f"removed or changed: {missing}" for missing in old - new), sorted(f"added: {added}" for added in new - old)


def _sentences(surface: Surface) -> Iterator[str]:
    return (f"{section}: {name}: {thing}" for section, rows in surface.items() for name, row in rows.items() for thing in row)
