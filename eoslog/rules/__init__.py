"""The rules, with no I/O: the store's state and its entries, partitions, transactions, groups, topics."""
