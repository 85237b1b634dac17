"""Delta tables: the actions of a Delta log, its versions and checkpoints, schemas and statistics."""
