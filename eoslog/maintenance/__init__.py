"""Background work on a store: sealing, compaction, retention, vacuum."""
