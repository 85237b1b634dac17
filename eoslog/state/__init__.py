"""The state machine: entries, requests and their rules. It does no I/O."""
