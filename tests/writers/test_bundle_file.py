"""A bundle as it is written: how its parts are packed."""

import io
import tarfile

import cramjam
import numpy as np
import pytest

from kafka_forensics.storage.bundles import SectionKind, inflated
from kafka_forensics.writers.bundle_file import BundleWriter
from tests.parsers.log.test_collected import ordinary
from tests.support.bundles import section_of

TEXT = b"".join(b'{"number": %d, "said": "so it is", "twice": %d}\n' % (number, 2 * number) for number in range(20_000))
BATCHES = section_of(ordinary(4000), digests=np.random.default_rng(1).integers(0, 1 << 63, (4000, 2)).astype(np.uint64))


@pytest.mark.parametrize(
    ("kind", "data", "level"), [(SectionKind.KEPT, TEXT, 1), (SectionKind.BYTES, TEXT, 1), (SectionKind.BATCHES, BATCHES, -1)]
)
def test_columns_are_packed_quickly_and_all_else_as_small_as_estimates_have_it(kind: SectionKind, data: bytes, level: int) -> None:
    output = io.BytesIO()
    writer = BundleWriter(output, {})
    writer.begin_file("a/0.log")
    writer.add("a/0.log", kind, 0, 9, data)
    writer.end_file(["a/0.log"])
    writer.finish([], {})
    with tarfile.open(fileobj=io.BytesIO(output.getvalue())) as tar:
        member = tar.extractfile("parts/000000.zst")
        assert member is not None
        packed = member.read()
    part = inflated(packed, 1 << 30)
    assert data in part
    others = {other: len(cramjam.zstd.compress(part, level=other)) for other in (1, -1)}
    assert len(packed) == others[level] != others[-level]
