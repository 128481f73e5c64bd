"""Schemas have a version and a description of every column; docs/facts.md is generated from them."""

import pyarrow as pa
import pytest

from kafka_forensics.cli.commands.export import FACT_NAMES
from kafka_forensics.model.arrow import TIME
from kafka_forensics.model.schemas import FACTS, PARTITION_KEYS, SNAPSHOT_FACTS, about
from lab.facts_page import page
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "facts.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page()


def test_the_command_line_lists_every_fact_in_order() -> None:
    assert tuple(FACTS) == FACT_NAMES


@pytest.mark.parametrize("name", FACTS)
def test_every_schema_has_a_version_and_every_column_a_description(name: str) -> None:
    schema = FACTS[name].schema
    assert schema.metadata is not None
    assert schema.metadata[b"kf.schema_version"] == b"1.0"
    assert schema.metadata[b"kf.fact"] == name.encode()
    assert [field.name for field in schema if not about(field)] == []
    assert len(set(schema.names)) == len(schema.names)


@pytest.mark.parametrize("name", [*FACTS, *SNAPSHOT_FACTS])
def test_every_time_is_a_nullable_timestamp_and_no_number_is_unsigned(name: str) -> None:
    schema = (FACTS | SNAPSHOT_FACTS)[name].schema
    times = [field for field in schema if "timestamp" in field.name and field.name != "timestamp_type"]
    assert all(field.type == TIME and field.nullable for field in times)
    assert [field for field in schema if pa.types.is_temporal(field.type)] == times
    assert not any(pa.types.is_unsigned_integer(field.type) for field in schema)


def test_partition_keys_of_replica_facts_are_directories() -> None:
    for fact in FACTS.values():
        assert fact.by_replica == (not set(PARTITION_KEYS) & set(fact.file_schema.names))
        assert not fact.by_replica or [fact.schema.field(key).nullable for key in PARTITION_KEYS] == [False, False, False, True]
