"""The paths of published tables, for modules that need not know the formats."""

from __future__ import annotations

DELTA_LOG = "_delta_log"
"""The directory of a Delta table's log, in the directory of the topic."""
DELTA_PARTITION_COLUMN = "_partition"
"""The first partition column of a Delta table. The paths of the data files begin with it."""
ICEBERG = "__iceberg/"
"""The directory of all Iceberg tables of a store."""
ICEBERG_METADATA = "metadata/"
"""The directory of an Iceberg table's metadata, in the directory of the table."""
