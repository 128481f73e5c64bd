"""The golden dumps are consistent: inputs, outputs, manifest; and broken inputs are reproducible."""

import pytest

from lab.dump_facts import DECODERS, as_table, from_table
from lab.golden_inputs import BROKEN_INDEXES, BROKEN_LOGS, TAKEN
from lab.make_golden import GOLDEN, INPUTS, decoders, input_files, table_name

HEALTHY_NAME = f"{TAKEN['idempotent'][1]}.log"


@pytest.fixture(scope="module")
def healthy() -> bytes:
    return (INPUTS / "idempotent" / HEALTHY_NAME).read_bytes()


def test_every_input_has_a_table_and_every_table_an_input() -> None:
    files = input_files()
    assert sorted(map(table_name, files)) == sorted(path.name for path in GOLDEN.glob("*.tsv"))
    assert {name.partition("/")[0] for name in files} == {path.name for path in INPUTS.iterdir()}
    assert set(decoders(files).values()) == set(DECODERS.values())


def test_golden_tables_round_trip_and_contain_no_local_paths() -> None:
    for path in GOLDEN.glob("*.tsv"):
        text = path.read_text()
        assert as_table(from_table(text)) == text
        assert "/tmp" not in text  # noqa: S108 - looked for, not used


def test_broken_inputs_are_reproducible(healthy: bytes) -> None:
    for case, mutate in BROKEN_LOGS.items():
        assert (INPUTS / case / HEALTHY_NAME).read_bytes() == mutate(healthy) != healthy, case
    for case, (suffix, mutate) in BROKEN_INDEXES.items():
        name = HEALTHY_NAME.replace(".log", suffix)
        assert (INPUTS / case / name).read_bytes() == mutate((INPUTS / "idempotent" / name).read_bytes()), case
        assert (INPUTS / case / HEALTHY_NAME).read_bytes() == healthy, case
