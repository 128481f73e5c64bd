"""The declared types of a fact as readers other than pyarrow give them."""

import pyarrow as pa

from kafka_forensics.model.schemas import FACTS


def plain(fact: str) -> pa.Schema:
    """The declared types as other readers' Arrow has them: everything nullable, large strings cast back."""
    return pa.schema([pa.field(field.name, _relaxed(field.type)) for field in FACTS[fact].schema])


def _relaxed(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.ListType):
        return pa.list_(_relaxed(kind.value_type))
    if isinstance(kind, pa.StructType):
        return pa.struct([pa.field(part.name, _relaxed(part.type)) for part in kind])
    return kind
