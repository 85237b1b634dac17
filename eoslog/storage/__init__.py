"""Object stores: put-if-absent, retry, clock, probe."""
