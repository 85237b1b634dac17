"""Published tables, whatever their format: a topic's files, and the changes that make a table show them."""
