"""Objects of storage services, read in ranges: S3, GCS, Azure, HDFS and the other services that fsspec supports."""

from kafka_forensics.storage.remote.errors import RequestFailedError, RequestFailure, attempt, request_once, with_missing_variables
from kafka_forensics.storage.remote.open import expand, open_filesystem, open_remote
from kafka_forensics.storage.remote.options import (
    NON_SECRET_OPTIONS,
    OptionsArgument,
    StorageOptions,
    option_pair,
    storage_options,
    variables_here,
)
from kafka_forensics.storage.remote.source import RemoteSource, list_children
from kafka_forensics.storage.remote.uris import PYARROW_SCHEMES, RemotePlace, options_of_uris, remote_place, without_uri_options
