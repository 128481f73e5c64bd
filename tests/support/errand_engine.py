"""The errands of a scan carried by nobody but a shuffled list: what Spark does, without Spark."""

import random

from kafka_forensics.compiled import worth_compiling
from kafka_forensics.engine.errand_values import Common, SliceAnswer, StretchRow, WitnessAnswer
from kafka_forensics.engine.errands import fold, judge, tell_witnesses
from kafka_forensics.engine.inputs import Inputs, gather
from kafka_forensics.engine.options import ScanOptions
from kafka_forensics.engine.scanning import Scan, digest_key
from kafka_forensics.engine.slices import slices, surroundings
from kafka_forensics.engine.travel import pack, unpack
from kafka_forensics.engine.works import fold_works, witness_work
from kafka_forensics.model.results import ScanResult


def scan(
    paths: list[str], options: ScanOptions, *, split_bytes: int = 1 << 28, work_bytes: int = 1 << 28, seed: int = 0
) -> ScanResult:
    """The answer of a scan whose works are done in an order drawn from `seed`."""
    return scan_inputs(gather(paths, options), options, split_bytes=split_bytes, work_bytes=work_bytes, seed=seed)


def scan_inputs(inputs: Inputs, options: ScanOptions, *, split_bytes: int, work_bytes: int, seed: int) -> ScanResult:
    """The same of what was gathered."""
    order = random.Random(seed)
    by_name = {source.name: source for source in inputs.sources}
    total = sum(plan.bytes for plan in [*inputs.replicas, *inputs.internal])
    common = Common(options, digest_key(), worth_compiling(total), split_bytes, surroundings(inputs))
    told: WitnessAnswer = unpack(tell_witnesses(pack(common), pack(witness_work(inputs))), lambda name, _: by_name[name])
    inputs.incomplete += told.noticed.incomplete
    inputs.controller = told.witnesses.controller
    running = Scan("local", inputs, options, told.witnesses)
    common.deep, common.around = running.deep, surroundings(inputs)
    packed, parts = pack(common), list(slices(inputs))
    works = [pack(one) for one in fold_works(parts, split_bytes, work_bytes)]
    order.shuffle(works)
    rows = [StretchRow(number, -1, -1, -1, pack(one)) for number, one in enumerate(parts)]
    rows += [row for work in works for row in fold(packed, work, strict=False)]
    rows.sort(key=lambda row: (row.slice, row.replica, row.segment, row.start))
    for number in range(len(parts)):
        answer: SliceAnswer = unpack(judge(packed, (row for row in rows if row.slice == number)), lambda name, _: by_name[name])
        for source, entry in answer.noticed.files:
            inputs.manifest.record(source, entry)
        inputs.incomplete += answer.noticed.incomplete
        running.incomplete += answer.incomplete
        running.findings += answer.lone
        if answer.answer is not None:
            running.take(answer.answer)
    return running.finish()
