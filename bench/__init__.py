"""Benchmarks of this tool against Kafka's `kafka-dump-log` and the limit of the machine, on the same files."""
