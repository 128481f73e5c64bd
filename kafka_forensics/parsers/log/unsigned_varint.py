"""The unsigned varint of Kafka's flexible messages (KIP-482), read fast: the twin of `spec.flexible.UNSIGNED_VARINT`."""


class UnsignedVarintError(Exception):
    """Five bytes, and the last still promises more; no parser lets this out."""


def read_unsigned(data: bytes, position: int) -> tuple[int, int]:
    """(unsigned 32-bit integer at `position`, position behind it); bits beyond 32 are dropped, as Kafka's reader drops them.

    Raises IndexError where the bytes end first, and UnsignedVarintError (ByteUtils.readUnsignedVarint).
    """
    value = data[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, position + 1
    raise UnsignedVarintError
