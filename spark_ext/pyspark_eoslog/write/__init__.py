"""Writes: planned, uploaded by tasks, committed in one step."""
