"""Nothing in a redacted bundle confirms a guess at a name or a key, even if someone tries a whole dictionary."""

import re
import struct
from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final

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
from kafka_forensics.storage.bundles.layout import read_batches_section
from kafka_forensics.writers.batches import (
    RecordToWrite,
    write_batch,
    write_raw_batch,
    write_record,
    write_transaction_log_key,
    write_transaction_log_value,
)
from kafka_forensics.writers.witness_batches import KEPT_SETTINGS
from tests.support.archives import ALL_ARCHIVES, SHIPPED, archive_params
from tests.support.brokers import put_consumer_offsets, put_meta_properties, put_segment
from tests.support.bundles import MTIME, UnpackedBundle, decompressed_members, make_bundle, unpack_bundle
from tests.support.groups import commit_key, commit_value, coordinator_batches, group_key, group_value, member
from tests.support.places import SAMPLES
from tests.support.segments import BASE_TIMESTAMP

NIGHTLY: Final = (*ALL_ARCHIVES[2:], "k44-unreg", "tiered/tiered-unclean", "tiered/tiered-remote-damaged")
MOST_GUESSES_AT_A_BATCH: Final = 1000
_PSEUDONYM: Final = re.compile(PSEUDONYM.pattern.encode())


def sections(parts_of: UnpackedBundle, kind: SectionKind) -> Iterator[bytes]:
    return (section[4] for part in parts_of.parts for section in part.sections if section[1] == kind.value)


def confirms(parts_of: UnpackedBundle, guessed: Iterable[tuple[Any, bytes]]) -> list[Any]:
    """The guesses for which a bundle has the CRC or the digest of the batch made with them."""
    facts = list(map(read_batches, sections(parts_of, SectionKind.BATCHES)))
    bundle_hashes = {crc for batch_facts in facts for crc in batch_facts.columns[[BatchColumn.CRC, BatchColumn.CRC_COMPUTED]].flat}
    bundle_hashes |= {digest.tobytes() for batch_facts in facts for digest in batch_facts.digests}
    return [guess for guess, batch in guessed if bundle_hashes & {int.from_bytes(batch[17:21], "big"), content_digest(batch)}]


def replaced(batch: bytes, names: dict[bytes, bytes]) -> bytes:
    """A batch with these names instead of pseudonyms, and with their lengths."""
    opened = decode_batch(batch)
    assert opened.header is not None
    header = opened.header

    def put(data: bytes | None) -> bytes | None:
        for old, new in names.items():
            sizes = [(len(text).to_bytes(2, "big"), encode_unsigned(len(text) + 1)) for text in (old, new)]
            for old_size, new_size in zip(*sizes, strict=True):
                data = data and data.replace(old_size + old, new_size + new)
        return data

    records = []
    for record in opened.iter_records():
        deltas = record.offset - header.base_offset, record.timestamp - header.base_timestamp
        records.append(write_record(RecordToWrite(put(record.key), put(record.value)), *deltas))
    return write_raw_batch(header._asdict(), b"".join(records))


def guesses(parts_of: UnpackedBundle, names: dict[str, set[bytes]]) -> Iterator[tuple[tuple[bytes, ...], bytes]]:
    """Names of a dictionary by kind, and a batch with them instead of pseudonyms, for all batches in a bundle."""
    for batch in {batch for section in sections(parts_of, SectionKind.REDUCED) for batch in read_batches_section(section).values()}:
        pseudonyms = sorted({match[0] for match in _PSEUDONYM.finditer(batch)})
        choices = [names.get(pseudonym.decode().partition("-")[0], set()) for pseudonym in pseudonyms]
        if pseudonyms and prod(map(len, choices)) <= MOST_GUESSES_AT_A_BATCH:
            for choice in product(*choices):
                guess = replaced(batch, dict(zip(pseudonyms, choice, strict=True)))
                if guess != batch:
                    yield choice, guess


@pytest.mark.parametrize(
    "name", ["unclean-election", *archive_params(*ALL_ARCHIVES[:2], "k44-quiet-live", *NIGHTLY, nightly=NIGHTLY)]
)
def test_no_guess_at_a_name_is_confirmed(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    evidence_paths = [path for path in (SAMPLES / name, SHIPPED / f"{name}.tar.xz") if path.exists()]
    evidence = evidence_paths[0] if evidence_paths else request.getfixturevalue("corpora") / f"{name}.tar.xz"
    pseudonyms: dict[str, tuple[str, str]] = {}
    bundle = make_bundle(
        evidence, tmp_path / "redacted", CollectOptions(hashes=True, pseudonyms=PseudonymMap("07" * 32, pseudonyms))
    )
    inflated, redacted = b"".join(decompressed_members(bundle).values()), unpack_bundle(bundle)
    assert [
        name
        for _, name in pseudonyms.values()
        if len(name) > len("some") and name not in str(KEPT_SETTINGS) and name.encode() in inflated
    ] == []
    dictionary: dict[str, set[bytes]] = {}
    for kind, original_name in pseudonyms.values():
        dictionary.setdefault(kind, set()).update([original_name.encode(), original_name[::-1].encode() + b"x"])
    guessed = list(guesses(redacted, dictionary))
    assert confirms(redacted, guessed) == []
    confirmed = {
        guess
        for guesses_of_batch in confirms(unpack_bundle(make_bundle(evidence, tmp_path / "plain")), guessed)
        for guess in guesses_of_batch
    }
    assert len(confirmed) >= 6 * ("txn" in dictionary)  # a bundle without pseudonyms confirms at least these


def test_no_guess_at_a_key_is_confirmed(tmp_path: Path) -> None:
    keys = [f"{pin:04}".encode() for pin in range(2000)]
    batches = {key: write_batch([RecordToWrite(key, None)], base_offset=0, base_timestamp=BASE_TIMESTAMP) for key in keys}
    put_segment(tmp_path / "broker-1" / "users-0", 0, batches[keys[1234]])
    for pseudonyms, expected in ((PseudonymMap("07" * 32, {}), []), (None, [keys[1234]])):
        options = CollectOptions(compacted="users", hashes=True, pseudonyms=pseudonyms)
        bundle = make_bundle(tmp_path / "broker-1", tmp_path / "bundle.kfb", options)
        assert confirms(unpack_bundle(bundle), batches.items()) == expected


class NumberedPseudonyms(PseudonymMap):
    """Pseudonyms that number the names in order."""

    def pseudonym(self, kind: NameKind, name: str) -> str:
        if name in WITNESS_TOPICS or name in self._pseudonyms.values():
            return name
        return self._pseudonyms.setdefault((kind, name), f"{kind}-{len(self._pseudonyms):012x}")

    one_time_pseudonym = pseudonym


@pytest.mark.parametrize("damage", [b"", bytes(2000), b"\1" * 30], ids=["sound", "zeros", "torn"])
def test_a_bundle_does_not_depend_on_names(damage: bytes, tmp_path: Path) -> None:
    """No size, place, CRC, digest or index depends on records with names."""
    bundle_facts = []
    for length in (1, 70):
        log_dir = tmp_path / str(length)
        put_meta_properties(log_dir, 1)
        a, b, c, d, e, f, g, h = (f"{letter}{'x' * length * number}" for number, letter in enumerate("abcdefgh", 1))
        group_member = member(a, client_id=b, client_host=c, subscription=d.encode())
        commits = [(commit_key(name, h), commit_value(3, metadata=name)) for name in (a, b, c, d)]
        groups = [(group_key(e), group_value(group_member, leader=a)), (b"\0\x63" + f.encode(), b"newer")]
        put_consumer_offsets(log_dir, coordinator_batches(*commits, *groups) + damage * (length if any(damage) else 1))
        state = write_transaction_log_value(TransactionMetadata(7, 0, 60_000, "Ongoing", ((g, 0), (h, 1)), 1, 1))
        ids = [write_transaction_log_key(name) for name in (a, b, c) * 60]
        batches = [coordinator_batches((key, state), start=start) for start, key in enumerate(ids)]
        put_segment(log_dir / "__transaction_state-0", 0, batches)
        places = [0, *np.cumsum(list(map(len, batches))).tolist()]
        index = b"".join(struct.pack(">ii", row, places[row]) for row in range(1, 180, 9 // (length % 9 + 1)))
        for directory in ("__transaction_state-0", "__transaction_state-1"):  # the other has no log
            put_segment(log_dir / directory, 0, index, "index")
        put_segment(log_dir / "__remote_log_metadata-0", 0, coordinator_batches((None, a.encode())))
        (log_dir / "bootstrap.checkpoint").write_bytes(coordinator_batches((None, b.encode())))
        options = CollectOptions(compacted="*", hashes=True, pseudonyms=NumberedPseudonyms("07" * 32, {}))
        parts_of = unpack_bundle(make_bundle(log_dir, tmp_path / f"{length}.kfb", options))
        bundle_facts.append(
            [[part.sections for part in parts_of.parts], *([*row[:MTIME], *row[MTIME + 1 :]] for row in parts_of.listing["files"])]
        )
    assert bundle_facts[0] == bundle_facts[1]
