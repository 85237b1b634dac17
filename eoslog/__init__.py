"""Kafka's exactly-once semantics on an object store alone."""
