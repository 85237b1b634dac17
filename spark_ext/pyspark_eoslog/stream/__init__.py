"""Streams: where a micro-batch ends, and what it reads."""
