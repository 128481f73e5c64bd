"""`dump --format kafka-dump-log`: a file as Kafka's own tool reads it."""
