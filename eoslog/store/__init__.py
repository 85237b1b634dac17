"""Object stores: put-if-absent on each, retries, request counting, the store's clock, the capability probe."""
