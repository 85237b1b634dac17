"""Administration of topics, groups and transactions."""
