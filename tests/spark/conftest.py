"""One Spark session for all tests of a run."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kafka_forensics.spark import default_builder, register


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A quiet session on two cores of this machine that tries tasks up to four times, with the data source registered."""
    session = default_builder("local[2,4]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(session)
    yield session
    session.stop()
