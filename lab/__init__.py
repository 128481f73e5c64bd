"""The laboratory: real Kafka on loopback, broken on purpose, and copied. Makes the samples and the golden tables."""
