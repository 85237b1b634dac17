"""Verification of a store: compare all its objects with the log, and repair what can be repaired without loss."""
