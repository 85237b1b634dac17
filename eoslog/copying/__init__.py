"""Copies of a store: one slot of it in another place, with the same or a new identity."""
