"""From folded replicas to findings: a partition, then the whole scan."""
