"""Prose about bytes of a segment and compressed data."""

from typing import Final

PROSE: Final = """
BATCH_CRC_MISMATCH: batch with a wrong checksum
    {batch} does not match its checksum[ (stored {stored_crc:crc}, computed {computed_crc:crc})]<held>
BATCH_MAGIC_UNKNOWN: batch of an unknown format version
    {batch} has a format version[ ({magic})] that no Kafka release writes, although Kafka would accept it<held>
BATCH_MAGIC_REGRESSION: batch of an older format than those before it
    {batch} has an older format version[ ({magic})] than the batches before it<held>
BATCH_COUNT_LIE: batch with a false number of records
    {batch} declares a number of records[ ({records_count})] that its bytes do not hold<held>
BATCH_RANGE_INCONSISTENT: batch whose offsets do not fit its records
    {batch} covers another number of offsets than it has records[ ({records_count})], on a topic that is not compacted<held>
RECORD_VARINT_OVERLONG: record with a number that does not end
    [record {record_index} of {batch}|a record of {batch}] has a variable-length number longer than the format allows<held>
RECORD_LENGTH_OUT_OF_BOUNDS: record with a length beyond its end
    [record {record_index} of {batch}|a record of {batch}] declares a length[ of {declared_length:byte}] beyond its end<held>
RECORD_MALFORMED: record that cannot be decoded
    [record {record_index} of {batch}|a record of {batch}] cannot be decoded[ ({reason})]<held>
FRAMING_LOST: bytes that are no batch
    no batch starts at {bytes}[ ({reason})][; then {batches_recovered:batch}, from offset {first_recovered_offset}]<held>
HIDDEN_BYTES: good batches that Kafka does not see
    [{batches_recovered:good batch}|good batches] in {bytes}[, offsets {first_recovered_offset} to {last_recovered_offset},] cannot
    be seen by Kafka and would be cut off at its next recovery<held>
    > Copy this log directory elsewhere before the broker starts: recovery cuts the file before these batches. <look>
SEG_TORN_TAIL: last batch cut short
    the log ends inside a batch[ behind offset {last_valid_offset}], at {bytes}[{clean_shutdown:if}, after a clean stop]
    > Kafka cuts this off when it next recovers the log[; see whether another replica has the whole batch with
    {compare}|. <only>]
SEG_SHORT: older segment cut short
    {file} ends inside a batch[ behind offset {last_valid_offset}], although a later segment follows<held>
SEG_ZERO_TAIL: zeros after the last batch
    only zeros follow the last batch, at {bytes}, as preallocation or a crash leaves them
SEG_HOLE: zeros where batches should be
    no batch starts at {bytes}, where [{zero_bytes:zero byte}|zeros] stand[; then {batches_recovered:batch}]<held>
SEG_NAME_MISMATCH: segment named after the wrong offset
    the name of {file} does not fit the offsets in it[: they start at {first_offset}, the name says {name_offset}]
    > Keep the file under the name it has[; see what is in it with {dump}|.]
BUDGET_EXCEEDED: bytes not examined to the end
    {bytes} were not examined to the end, because that would take too long[ ({reason})]
DECOMP_LIMIT_EXCEEDED: batch that unpacks to too much
    {batch} unpacks to more than [{limit:byte}|the limit][ ({codec})], so its records were not all read
CODEC_SIZE_LIE: compressed data with a false size
    the [{codec}|compressed] data of {batch} declare a size[ of {declared_length:byte}] that their bytes do not have<held>
CODEC_MALFORMED: compressed data that cannot be unpacked
    the [{codec}|compressed] data of {batch} cannot be unpacked[ ({reason})]<held>
LEGACY_NESTED_COMPRESSION: compressed message within a compressed message
    {batch} holds a compressed message within a compressed one, which Kafka does not read<held>
"""
