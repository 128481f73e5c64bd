"""Objects of storage services, read in ranges: S3, GCS, Azure, HDFS and the other services that fsspec supports."""

from kafka_forensics.storage.remote.errors import Failure, RequestFailedError, attempt, once
from kafka_forensics.storage.remote.open import expand, open_filesystem, open_remote
from kafka_forensics.storage.remote.options import SHOWN, Given, StorageOptions, option_pair, storage_options
from kafka_forensics.storage.remote.source import RemoteSource, children
from kafka_forensics.storage.remote.uris import NATIVE, RemotePlace, apart, of_places, remote_place
