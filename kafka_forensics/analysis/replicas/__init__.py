"""Replicas of one partition: what each one's own files prove, where they part, what was lost and who holds it."""
