"""The PySpark that the package needs. It imports nothing that an older PySpark lacks."""

from __future__ import annotations

import re
import sys

import pyspark

OLDEST = (4, 2)
"""The same as in the extra ``spark`` of ``pyproject.toml``."""


def check_pyspark() -> None:
    """Refuse an older PySpark.

    Raises:
        ImportError: naming the version that is needed and the one found.
    """
    found = re.match(r"(\d+)\.(\d+)", pyspark.__version__)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise ImportError(
            f"eoslog needs PySpark {needed} or later, found {pyspark.__version__}. "
            f"Install pyspark>={needed} for every Python that Spark starts."
        )


def is_planning() -> bool:
    """Return True in a Python process in which Spark looks up or plans data sources.

    Their programs are modules of this package, and users' programs do not import it.
    """
    return "pyspark.sql.worker" in sys.modules
