"""The planner of a read and the columnar scan."""
