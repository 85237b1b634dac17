"""The slot log: append, fold, checkpoint, safe deletion. It knows nothing of Kafka."""
