"""Mutants of kernels, in their interpreted form."""

from tests.mutants.mutant import mutants_of

MUTANTS = [
    *mutants_of(
        "parsers/kernels/walk",
        "parsers/kernels/test_walk",
        ("    if position + 61 > file_size:\n        return -1", "    if position + 61 >= file_size:\n        return -1"),
        ("if delta >= 0:", "if delta < 0:"),
        (
            "last_offset = base_offset + delta if base_offset <= INT64_MAX - delta else INT64_MAX",
            "last_offset = base_offset + delta if base_offset > INT64_MAX - delta else INT64_MAX",
        ),
        (
            "timestamp = load_i64(buffer, start + 18) if magic == 1 else -1",
            "timestamp = load_i64(buffer, start + 18) if magic != 1 else -1",
        ),
        ("if int(buffer[position + step]) < 128:", "if int(buffer[position + step]) >= 128:"),
        (
            "if position + 1 >= end or int(buffer[position + 1]) >= 128:",
            "if position + 1 >= end or int(buffer[position + 1]) < 128:",
        ),
        (
            "    position = skip_varint(buffer, start + 61, end)\n    if position < 0:",
            "    position = skip_varint(buffer, start + 61, end)\n    if position >= 0:",
        ),
        ("position = skip_varint(buffer, position + 1, end)", "position = skip_varint(buffer, position, end)"),
        ("if size < 61:", "if size >= 61:"),
        ("if start + 61 > length and position + 61 <= file_size:", "if start + 61 > length or position + 61 <= file_size:"),
        (
            "if size < minimum or position + size > file_size or (magic > 2):",
            "if size < minimum or position + size > file_size or (magic <= 2):",
        ),
        ("legacy = magic < 2", "legacy = magic >= 2"),
        ("if follows > 0:", "if follows <= 0:"),
        ("if follows < 0:", "if follows >= 0:"),
        ("if position == file_size:", "if position != file_size:"),
        ("if position + 61 > file_size:", "if position + 61 <= file_size:"),
        (
            "if size < 61 or position + size > file_size or int(buffer[start + 16]) != 2:",
            "if size < 61 or position + size > file_size or int(buffer[start + 16]) == 2:",
        ),
    ),
    *mutants_of(
        "parsers/kernels/records",
        "parsers/kernels/test_record_kernels parsers/log/test_legacy parsers/log/test_records",
        ("if magic > 1 or length < 14 + 8 * magic:", "if length < 14 + 8 * magic:"),
        ("if position >= end:", "if position < end:"),
        ("return (byte >> 1) ^ -(byte & 1), position + 1", "return (byte >> 1) ^ -(byte & 1), position"),
        ("if length < 0 and part == 0:", "if length <= 0 and part == 0:"),
        ("if start >= end:", "if start < end:"),
        (
            "        length, at = read_varint(buffer, at, end)\n        if at < 0:",
            "        length, at = read_varint(buffer, at, end)\n        if at <= 0:",
            "equivalent: behind a varint no position is 0",
        ),
        (
            "            return VARINT_OVERLONG if at == _OVERLONG else MALFORMED, start\n        if length > end - at:",
            "            return VARINT_OVERLONG if at == _OVERLONG else MALFORMED, start\n        if length <= end - at:",
        ),
        (
            "    count, at = read_varint(buffer, at, end)\n    if at < 0:",
            "    count, at = read_varint(buffer, at, end)\n    if at <= 0:",
            "equivalent: behind a varint no position is 0",
        ),
        ("if records * step >= columns:", "if records * step < columns:"),
        ("if code != OK or records != count:", "if code == OK or records != count:"),
        ("if magic > 1 or length < 14 + 8 * magic:", "if magic > 1 or length <= 14 + 8 * magic:"),
        ("if int(buffer[position + 17]) & 7 != 0:", "if int(buffer[position + 17]) & 7 == 0:"),
        (
            "if crc32(buffer, position + 16, position + 12 + length, 0) != load_i32(buffer, position + 12) & 0xFFFFFFFF:",
            "if crc32(buffer, position + 16, position + 12 + length, 0) == load_i32(buffer, position + 12) & 0xFFFFFFFF:",
        ),
        ("if code == OK and attributes & 0x20 != 0 and count > 0:", "if code == OK or attributes & 0x20 != 0 and count > 0:"),
    ),
    *mutants_of(
        "parsers/kernels/walk",
        "parsers/log/test_segment_damage parsers/log/test_segment_search",
        ("if magic > 2 or (magic < 2 and not legacy):", "if magic <= 2 or (magic < 2 and not legacy):"),
        (
            "if size < (61 if magic == 2 else 26 + 8 * magic) or position + size > file_size:",
            "if size < (61 if magic == 2 else 26 + 8 * magic) or position + size <= file_size:",
        ),
        (
            "if base_offset <= min_offset or int(buffer[start + 17]) > 15:",
            "if base_offset <= min_offset or int(buffer[start + 17]) <= 15:",
        ),
        ("if size > budget:", "if size <= budget:"),
    ),
    *mutants_of(
        "parsers/kernels/records",
        "parsers/kernels/test_gather",
        (
            "start, end = int(payloads[0, index]), int(payloads[1, index])",
            "start, end = int(payloads[0, first]), int(payloads[1, index])",
        ),
        ("if code == OK and gathered != payloads[2, index]:", "if code == OK or gathered != payloads[2, index]:"),
    ),
    *mutants_of(
        "parsers/kernels/partitioners",
        "parsers/kernels/test_partitioners",
        (
            "out[_CRC32, row] = 0 if length < 0 else crc32(buffer, start, start + length, 0)",
            "out[_CRC32, row] = 0 if length >= 0 else crc32(buffer, start, start + length, 0)",
        ),
        (
            "near = -_FAR < base_timestamp < _FAR and -_FAR < delta < _FAR",
            "near = -_FAR < base_timestamp <= _FAR and -_FAR < delta < _FAR",
        ),
        (
            "if attributes & 7 != 0 or (magic >= 2 and attributes & 0x20 != 0):",
            "if attributes & 7 != 0 or (magic >= 2 or attributes & 0x20 != 0):",
        ),
    ),
]
