"""What published tables of all formats share: a topic's files, and the changes that make a table show them."""
