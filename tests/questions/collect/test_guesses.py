"""Guesses at the names and keys behind a redacted bundle: nothing in it confirms one, whoever tries all of a dictionary."""

import re
import struct
import tarfile
from collections.abc import Iterator
from itertools import product
from math import prod
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.coordinators import TransactionMetadata
from kafka_forensics.model.pseudonyms import PSEUDONYM, NameKind
from kafka_forensics.parsers.log import content_digest, decode_batch, read_batches
from kafka_forensics.parsers.spec.record_batch import encode_unsigned
from kafka_forensics.questions.collect import CollectOptions, PseudonymMap
from kafka_forensics.storage.bundles import SectionKind
from kafka_forensics.storage.bundles.layout import read_held
from kafka_forensics.writers.batches import (
    RecordToWrite,
    write_batch,
    write_raw_batch,
    write_record,
    write_transaction_log_key,
    write_transaction_log_value,
)
from tests.support.archives import OF_BROKERS, SHIPPED, of_brokers
from tests.support.brokers import put_meta, put_offsets, put_segment
from tests.support.bundles import ALLOCATED, HASHED, LOG, MTIME, SIZE, TakenApart, bundle_of, taken_apart
from tests.support.groups import commit_key, commit_value, group_key, group_value, log_of, member
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


class Numbered(PseudonymMap):
    """Pseudonyms by when a name comes first, whatever it is."""

    def pseudonym(self, kind: NameKind, name: str) -> str:
        if name in WITNESS_TOPICS or name in self._known.values():
            return name
        return self._known.setdefault((kind, name), f"{kind}-{len(self._known):012x}")

    unremembered = pseudonym


@pytest.mark.parametrize("damage", [b"", bytes(2000), b"\1" * 30], ids=["sound", "zeros", "torn"])
def test_a_bundle_is_the_same_whatever_names_are(damage: bytes, tmp_path: Path) -> None:
    """Sizes, places, CRCs, digests, indexes: nothing in it comes of the records that hold names."""
    held = []
    for length in (1, 70):
        words = {name: f"{name}{'x' * length * number}" for number, name in enumerate("abcdefgh", 1)}
        log_dir = put_meta(tmp_path / str(length), 1) or tmp_path / str(length)
        someone = member(words["a"], client_id=words["b"], client_host=words["c"], subscription=words["d"].encode())
        put_offsets(
            log_dir,
            log_of(
                *((commit_key(words[name], words["h"]), commit_value(3, metadata=words[name])) for name in "abcd"),
                (group_key(words["e"]), group_value(someone, leader=words["a"])),
                (b"\0\x63" + words["f"].encode(), b"newer"),
            )
            + damage * (length if any(damage) else 1),
        )
        state = TransactionMetadata(7, 0, 60_000, "Ongoing", ((words["g"], 0), (words["h"], 1)), 1, 1)
        data = [
            log_of((write_transaction_log_key(words[name]), write_transaction_log_value(state)), start=start)
            for start, name in enumerate("abc" * 60)
        ]
        put_segment(log_dir / "__transaction_state-0", 0, data)
        places = np.cumsum([len(batch) for batch in data])
        entries = [(start, int(places[start - 1])) for start in range(1, 180, 9 // (length % 9 + 1))]
        put_segment(log_dir / "__transaction_state-0", 0, b"".join(struct.pack(">ii", *entry) for entry in entries), "index")
        put_segment(log_dir / "__remote_log_metadata-0", 0, log_of((None, words["a"].encode())))
        (log_dir / "bootstrap.checkpoint").write_bytes(log_of((None, words["b"].encode())))
        options = CollectOptions(compacted="*", hashes=True, pseudonyms=Numbered("07" * 32, {}))
        apart = taken_apart(bundle_of(log_dir, tmp_path / f"{length}.kfb", options))
        rows = [[*row[:MTIME], *row[MTIME + 1 :]] for row in apart.listing["files"]]
        held.append((rows, [part.sections for part in apart.parts]))
    assert held[0] == held[1]
