"""Features: additions to format 1 that a version of eoslog must know before it can read or write a store.

A store gets a feature when it is created, or just before the first entry that needs it. A version without features
refuses the entry that adds one, like every entry of an unknown type.
"""

from __future__ import annotations

from collections.abc import Sequence

from eoslog.errors import InvalidEntry, UnsupportedFormat
from eoslog.state.draft import Draft
from eoslog.state.entries import FeaturesAdded

STARTS_ANEW_AFTER = "starts_anew_after"
"""A commit may restart an application's versions. Without this feature eoslog would take it for a replay."""

STATISTICS_COLUMNS = "statistics_columns"
"""An entry may change the setting of this name alone. An eoslog that does not know the setting would see an entry
without a change, and refuse it as invalid.
"""

MAX_MESSAGE_BYTES = "max_message_bytes"
"""An entry may change the setting of this name alone, or only it and ``statistics_columns``. An eoslog that knows
neither would see an entry without a change.
"""

TRANSACTION_VERSION = "transaction_version"
"""An ``end`` may leave the epoch as it is, and group offsets may be added to a transaction before its end. Without this
feature eoslog would compute another epoch, and lose the offsets.
"""

GROUP_COORDINATORS = "group_coordinators"
"""A member of a group may be a coordinator. Without this feature eoslog would assign partitions to it, and let
consumers join its group.
"""

READER_FEATURES: frozenset[str] = frozenset(
    {STARTS_ANEW_AFTER, STATISTICS_COLUMNS, MAX_MESSAGE_BYTES, TRANSACTION_VERSION, GROUP_COORDINATORS}
)
"""The features of a store that this version can read."""

WRITER_FEATURES: frozenset[str] = frozenset()
"""The further features of a store that this version can write."""


def check_features(reader_features: Sequence[str], writer_features: Sequence[str]) -> None:
    """Check that this version knows all features of a store.

    Raises:
        UnsupportedFormat: it does not know one of them.
    """
    unknown = (set(reader_features) - READER_FEATURES) | (set(writer_features) - WRITER_FEATURES)
    if unknown:
        raise UnsupportedFormat(
            f"the store needs features that this version of eoslog does not know: {', '.join(sorted(unknown))}. "
            "Upgrade eoslog"
        )


def need_feature(draft: Draft, feature: str) -> None:
    """Add a feature to the store, unless it has the feature. Call it before the entry that needs the feature."""
    if feature not in draft.reader_features:
        draft.append(FeaturesAdded(reader_features=(feature,)))


def add_features(draft: Draft, entry: FeaturesAdded) -> None:
    """Add features to the store.

    Raises:
        UnsupportedFormat: this version does not know one of the features.
        InvalidEntry: the store has all of them already.
    """
    check_features(entry.reader_features, entry.writer_features)
    readers = dict.fromkeys((*draft.reader_features, *entry.reader_features))
    writers = dict.fromkeys((*draft.writer_features, *entry.writer_features))
    if len(readers) == len(draft.reader_features) and len(writers) == len(draft.writer_features):
        raise InvalidEntry("the store has these features already")
    draft.reader_features, draft.writer_features = tuple(readers), tuple(writers)
