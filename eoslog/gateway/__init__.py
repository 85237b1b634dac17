"""A gateway for Kafka's clients: it speaks Kafka's protocol in front of a store."""
