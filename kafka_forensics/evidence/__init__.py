"""What was given to a question, and what should have been there."""
