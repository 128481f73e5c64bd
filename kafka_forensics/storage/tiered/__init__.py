"""Remote stores of tiered topics (KIP-405): their layouts, the listing of their objects, and the bytes of their segments."""

from kafka_forensics.storage.tiered.decoded import DecodedStore
from kafka_forensics.storage.tiered.layout import RemotePart, is_named_by_id
from kafka_forensics.storage.tiered.store import (
    LAYOUTS,
    RemoteStore,
    belongs_to_store,
    is_store,
    layout_of,
    list_store,
    merged_log,
    stem_of,
    stored_object,
)
