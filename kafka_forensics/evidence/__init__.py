"""The inputs of a question, and the replicas that are expected in them."""
