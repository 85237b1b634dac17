"""Streams: the ends of micro-batches, and the rows that they read."""
