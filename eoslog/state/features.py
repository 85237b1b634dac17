"""Features: what a version must know to fold a store's log, beyond what format 1 began with.

A store has them from its making on, or from the first entry on that asks for one. Versions that know no features refuse
the entry that adds one, as each type of entry that they do not know.
"""

from __future__ import annotations

from collections.abc import Sequence

from eoslog.errors import InvalidEntry, UnsupportedFormat
from eoslog.state.draft import Draft
from eoslog.state.entries import FeaturesAdded

STARTS_ANEW_AFTER = "starts_anew_after"
"""A token may begin an application's versions again: whoever does not know it would take its commit for a replay."""

STATISTICS_COLUMNS = "statistics_columns"
"""That setting may change alone: whoever does not know it would find that nothing changes, which is no valid entry."""

READER_FEATURES: frozenset[str] = frozenset({STARTS_ANEW_AFTER, STATISTICS_COLUMNS})
"""The features of a store that this version can read."""

WRITER_FEATURES: frozenset[str] = frozenset()
"""The features of a store that this version can write, beside those."""


def check_features(reader_features: Sequence[str], writer_features: Sequence[str]) -> None:
    """Raises: UnsupportedFormat: the store needs a feature that this version does not know."""
    unknown = (set(reader_features) - READER_FEATURES) | (set(writer_features) - WRITER_FEATURES)
    if unknown:
        raise UnsupportedFormat(
            f"the store needs features that this version of eoslog does not know: {', '.join(sorted(unknown))}; upgrade"
        )


def need_feature(draft: Draft, feature: str) -> None:
    """Give the store a feature before the entry that asks for it; nothing if it has it."""
    if feature not in draft.reader_features:
        draft.append(FeaturesAdded(reader_features=(feature,)))


def add_features(draft: Draft, entry: FeaturesAdded) -> None:
    """Raises: UnsupportedFormat; InvalidEntry: nothing is added."""
    check_features(entry.reader_features, entry.writer_features)
    readers = dict.fromkeys((*draft.reader_features, *entry.reader_features))
    writers = dict.fromkeys((*draft.writer_features, *entry.writer_features))
    if len(readers) == len(draft.reader_features) and len(writers) == len(draft.writer_features):
        raise InvalidEntry("the store has these features already")
    draft.reader_features, draft.writer_features = tuple(readers), tuple(writers)
