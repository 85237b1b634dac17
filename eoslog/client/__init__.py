"""Producer, Consumer, Admin and the coordinator's duties that any of them may carry out."""
