"""The plan every engine runs (splits → fold → merge → compare → drill down), and the local engine."""
