"""Batch reads: planned once, packed into tasks."""
