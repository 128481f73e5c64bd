"""Facts → findings: one module per question, each a fold with a small mergeable state."""
