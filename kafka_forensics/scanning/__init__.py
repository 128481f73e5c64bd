"""How a scan runs: replicas are folded, reread where need be, set beside what other logs say, and judged; here or in workers."""
