"""What a broker keeps beside a `.log` file: `.index`, `.timeindex`, `.txnindex` and `.snapshot`."""
