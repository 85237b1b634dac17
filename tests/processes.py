"""Processes that tests start with a function to run."""

from __future__ import annotations

import multiprocessing

PROCESSES = multiprocessing.get_context("forkserver")
"""Each process is a fork of one that has imported these modules and has done nothing else. So it starts at once."""
PROCESSES.set_forkserver_preload(
    ["tests.contention.test_killed_append_services", "tests.security.test_decompression_bombs"]
)
