"""Replays the logs of controllers and coordinators: what they record about every partition."""

from kafka_forensics.analysis.internal_topics.controller import AgreedLog, ControllerReplay, MetadataCopy, add_copy, merge_copies
from kafka_forensics.analysis.internal_topics.group_log import GroupReplay
from kafka_forensics.analysis.internal_topics.metadata_checks import REPLAY_EXCEPTIONS, MetadataChecks
from kafka_forensics.analysis.internal_topics.misplaced_state import PartitionCount, misplaced_ids, misplaced_offsets
from kafka_forensics.analysis.internal_topics.remote_log import RemoteLogReplay, misplaced_events, rejected_events, remote_logs
from kafka_forensics.analysis.internal_topics.share_log import ShareReplay
from kafka_forensics.analysis.internal_topics.transaction_log import TransactionLogReplay, will_be_ended
