"""Options of Delta Lake that eoslog lacks, each with its replacement or the reason why it is not needed."""

from __future__ import annotations

from collections.abc import Iterable

from eoslog.errors import InvalidOption

_ROWS_NEVER_CHANGE = "leave it out: rows never change, and deleted ones are for option 'failOnDataLoss'"
_ADVICE = {
    "startingVersion": "give 'startingOffsets'; whole commits in order come with 'isolationLevel=snapshot'",
    "endingVersion": "a batch ends at 'endingOffsets', or reads the state as of 'versionAsOf'",
    "ignoreChanges": _ROWS_NEVER_CHANGE,
    "ignoreDeletes": _ROWS_NEVER_CHANGE,
    "skipChangeCommits": _ROWS_NEVER_CHANGE,
    "readChangeFeed": "all rows are appended; option 'includeTransactionColumns' tells which commit each is of",
    "overwriteSchema": "columns are only added: option 'mergeSchema', or another topic",
    "replaceWhere": "mode('overwrite') replaces all rows of the topic",
    "partitionOverwriteMode": "mode('overwrite') replaces all rows of the topic",
    "optimizeWrite": "coalesce the DataFrame; the coordinator compacts small files",
    "withEventTimeOrder": "leave it out: rows come in the order of their offsets",
    "schemaTrackingLocation": "leave it out: the log keeps the schemas of a topic",
}
_NAMES = {name.lower(): name for name in _ADVICE}


def refuse(options: Iterable[str]) -> None:
    """Refuse options, by their names in lower case, that a job for Delta Lake may have.

    Raises:
        InvalidOption: saying what to give in its place.
    """
    for name in options:
        if name in _NAMES:
            raise InvalidOption(f"option {_NAMES[name]!r} of Delta Lake is not supported: {_ADVICE[_NAMES[name]]}")
