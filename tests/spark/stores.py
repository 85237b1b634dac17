"""On which stores a test of Spark runs: by default where ``--store`` says."""

from __future__ import annotations

import pytest

each_store = pytest.mark.parametrize("root", ["local", "s3"], indirect=True)
"""Runs a test on disk and on a real S3 server, whatever ``--store`` says."""
