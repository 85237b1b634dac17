"""Spark writes: the planner plans them, tasks upload files, and the driver commits all of them in one step."""
