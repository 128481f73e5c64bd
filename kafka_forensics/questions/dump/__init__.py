"""`dump`: what is in a file of Kafka's, as batches, records or annotated bytes."""
