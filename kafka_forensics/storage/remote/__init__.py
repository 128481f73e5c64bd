"""Files behind a storage service: S3, GCS, Azure, HDFS and whatever fsspec knows, read in ranges."""
