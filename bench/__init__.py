"""Benchmarks: this tool, Kafka's own `kafka-dump-log` and the limit of the machine, on the same files in one run."""
