"""The limit of this machine: the same reads and a CRC of every batch by the same kernel, with as many threads."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.parsers.kernels.compiling import kernel, use_compiled
from kafka_forensics.parsers.kernels.crc import crc32c, load_i32
from kafka_forensics.parsers.log import Window
from kafka_forensics.scanning.folding.splits import Split, splits_of


@kernel
def check_crcs(buffer: "np.ndarray", start: int, length: int) -> tuple[int, int]:
    """Check the CRC of every whole batch in the window; return (position where it stopped, number of wrong CRCs)."""
    wrong = 0
    while start + 61 <= length:
        size = load_i32(buffer, start + 8) + 12
        if start + size > length:
            break
        computed = crc32c(buffer, start + 21, start + size, 0)
        wrong += computed != load_i32(buffer, start + 17) & 0xFFFFFFFF
        start += size
    return start, wrong


def limit_seconds(path: str, jobs: int) -> float:
    """Seconds to read and CRC everything below `path`, without start-up and compilation."""
    use_compiled(True)
    check_crcs(np.zeros(64, np.uint8), 64, 64)
    inputs = gather([path], ScanOptions())
    splits = [split for index, plan in enumerate(inputs.replicas) for split in splits_of(index, plan)]

    def read(split: Split) -> int:
        plan = inputs.replicas[split.replica]
        assert split.segment.log is not None
        position, bad = split.start, 0
        with plan.log_dir.source.open(split.segment.log.path) as file:
            window = Window(file)
            while position < split.end:
                window.move(position, 61)
                stop, wrong = check_crcs(window.buffer, 0, min(window.length, split.end - position))
                if stop == 0:
                    window.move(position, 16 << 20)
                    stop, wrong = check_crcs(window.buffer, 0, window.length)
                assert stop > 0
                position += int(stop)
                bad += int(wrong)
        return bad

    begin = time.perf_counter()
    with ThreadPoolExecutor(jobs) as pool:
        assert sum(pool.map(read, splits)) == 0
    return time.perf_counter() - begin
