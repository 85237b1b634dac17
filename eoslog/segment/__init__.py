"""Data files and index files: Parquet, Kafka's binary codecs, sealing, compaction, vacuum."""
