"""Guesses at the names and keys behind a redacted bundle: nothing in it confirms one, whoever tries all of a dictionary."""

import re
import tarfile
from collections.abc import Iterator
from itertools import product
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.pseudonyms import PSEUDONYM
from kafka_forensics.parsers.log import content_digest, decode_batch, read_batches
from kafka_forensics.parsers.spec.record_batch import encode_unsigned
from kafka_forensics.questions.collect import CollectOptions, PseudonymMap
from kafka_forensics.storage.bundles import SectionKind
from kafka_forensics.storage.bundles.layout import read_held
from kafka_forensics.writers.batches import RecordToWrite, write_batch, write_raw_batch, write_record
from tests.support.archives import OF_BROKERS, SHIPPED, of_brokers
from tests.support.bundles import ALLOCATED, HASHED, LOG, SIZE, TakenApart, bundle_of, taken_apart
from tests.support.segments import BASE_TIMESTAMP

SAMPLES: Final = Path(__file__).resolve().parents[3] / "sample_logs"
MOST_GUESSES: Final = 1000
"""At one batch."""
_PSEUDONYM: Final = re.compile(PSEUDONYM.pattern.encode())
_CRC: Final = slice(17, 21)


def confirmations(apart: TakenApart) -> set[object]:
    """CRCs, sizes and digests in a bundle, in which whoever guesses at a batch looks for those of the guess."""
    found: set[object] = set()
    for part in apart.parts:
        for _, kind, _, _, data in part.sections:
            if kind == SectionKind.BATCHES.value:
                facts = read_batches(data)
                found |= set(facts.columns[[BatchColumn.CRC, BatchColumn.CRC_COMPUTED]].flat)
                found |= {digest.tobytes() for digest in facts.digests}
    return found


def confirms(guess: bytes, known: set[object]) -> bool:
    return int.from_bytes(guess[_CRC], "big") in known or content_digest(guess) in known


def replaced(batch: bytes, names: dict[bytes, bytes]) -> bytes:
    """A batch with these names in the place of pseudonyms, each behind its length."""
    opened = decode_batch(batch)
    assert opened.header is not None
    first = opened.header

    def put(data: bytes | None) -> bytes | None:
        if data is None:
            return None
        for pseudonym, name in names.items():
            data = data.replace(len(pseudonym).to_bytes(2, "big") + pseudonym, len(name).to_bytes(2, "big") + name)
            data = data.replace(encode_unsigned(len(pseudonym) + 1) + pseudonym, encode_unsigned(len(name) + 1) + name)
        return data

    records = [
        write_record(
            RecordToWrite(put(record.key), put(record.value)),
            record.offset - first.base_offset,
            record.timestamp - first.base_timestamp,
        )
        for record in opened.iter_records()
    ]
    return write_raw_batch(first._asdict(), b"".join(records))


def guesses(apart: TakenApart, names: dict[str, list[bytes]]) -> Iterator[tuple[tuple[bytes, ...], bytes]]:
    """Names of a dictionary by kind, and a batch with them in the place of pseudonyms: for all batches that a bundle holds."""
    batches = {
        batch
        for row in apart.listing["files"]
        for part in apart.sections(row[0], SectionKind.TOLD)
        for batch in read_held(part[4]).values()
    }
    for batch in batches:
        pseudonyms = sorted({match[0] for match in _PSEUDONYM.finditer(batch)})
        choices = [names.get(pseudonym.decode().partition("-")[0], []) for pseudonym in pseudonyms]
        if pseudonyms and prod(map(len, choices)) <= MOST_GUESSES:
            for choice in product(*choices):
                guess = replaced(batch, dict(zip(pseudonyms, choice, strict=True)))
                if guess != batch:
                    yield choice, guess


@pytest.fixture(
    params=["unclean-election", *of_brokers(*OF_BROKERS, "k44-unreg", "k44-quiet-live", nightly=(*OF_BROKERS[2:], "k44-unreg"))]
)
def evidence(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Log directories of real brokers."""
    if (SAMPLES / request.param).is_dir():
        return SAMPLES / str(request.param)
    archive = SHIPPED / f"{request.param}.tar.xz"
    with tarfile.open(archive if archive.exists() else request.getfixturevalue("corpora") / archive.name) as packed:
        packed.extractall(tmp_path / "logs", filter="data")
    return tmp_path / "logs"


def test_no_guess_at_a_name_is_confirmed(evidence: Path, tmp_path: Path) -> None:
    held: dict[str, tuple[str, str]] = {}
    apart = taken_apart(
        bundle_of(evidence, tmp_path / "redacted.kfb", CollectOptions(hashes=True, pseudonyms=PseudonymMap("07" * 32, held)))
    )
    known = confirmations(apart), confirmations(taken_apart(bundle_of(evidence, tmp_path / "plain.kfb")))
    dictionary: dict[str, list[bytes]] = {}
    for kind, name in held.values():
        dictionary.setdefault(kind, []).extend([name.encode(), name[::-1].encode() + b"x"])
    found = [{name for names, guess in guesses(apart, dictionary) if confirms(guess, facts) for name in names} for facts in known]
    assert found[0] == set()
    has_ids = any(kind == "txn" for kind, _ in held.values())
    assert len(found[1]) >= 7 * has_ids  # with the CRCs of the logs themselves the guesses are good
    require_laid_out_anew(apart)


def require_laid_out_anew(apart: TakenApart) -> None:
    """Size, place and CRC of a batch are those of its substitute, and a log without damage is as large as its batches."""
    for row in apart.listing["files"]:
        told: dict[int, bytes] = {}
        for part in apart.sections(row[0], SectionKind.TOLD):
            told |= read_held(part[4])
        if told:
            facts = [read_batches(section[4]) for section in apart.sections(row[0], SectionKind.BATCHES)]
            columns = np.concatenate([part.columns for part in facts], axis=1)
            places = columns[[BatchColumn.POSITION, BatchColumn.SIZE_IN_BYTES, BatchColumn.CRC]].T.tolist()
            assert [place for place in places if place[0] in told] == [
                [position, len(batch), int.from_bytes(batch[_CRC], "big")] for position, batch in sorted(told.items())
            ]
            assert any(part.damage for part in facts) or row[SIZE] == columns[BatchColumn.SIZE_IN_BYTES].sum()
            assert (row[ALLOCATED], row[HASHED]) == (None, None)


def test_no_guess_at_a_key_is_confirmed(tmp_path: Path) -> None:
    (tmp_path / "broker-1" / "users-0").mkdir(parents=True)
    batches = [
        write_batch([RecordToWrite(f"{pin:04}".encode(), None)], base_offset=0, base_timestamp=BASE_TIMESTAMP)
        for pin in range(2000)
    ]
    (tmp_path / "broker-1" / "users-0" / LOG).write_bytes(batches[1234])
    for pseudonyms, expected in ((PseudonymMap("07" * 32, {}), []), (None, [1234])):
        options = CollectOptions(compacted="users", hashes=True, pseudonyms=pseudonyms)
        known = confirmations(taken_apart(bundle_of(tmp_path / "broker-1", tmp_path / "bundle.kfb", options)))
        assert [pin for pin, batch in enumerate(batches) if confirms(batch, known)] == expected
