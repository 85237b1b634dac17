"""Verifying a store: whether everything that lies there is what the log says, and what of it may be put right."""
