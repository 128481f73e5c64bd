"""Answers in the formats of the contract, a module for each kind of answer; `rows` writes lists, `words` is shared."""
