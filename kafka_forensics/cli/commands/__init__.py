"""The commands, a module each: its options, what it asks the library, what it says beside the answer."""
