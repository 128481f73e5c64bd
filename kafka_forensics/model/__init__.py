"""Values that all packages share: fact schemas, findings, results, Kafka's constants. No bytes, engines or text."""
