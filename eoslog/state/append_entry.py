"""The request that appends one entry as it is given."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.errors import EosLogError
from eoslog.state.draft import Draft
from eoslog.state.entries import Entry


@dataclass(frozen=True)
class AppendEntry:
    """Append an entry. The answer is False if the state refuses it with one of the errors in ``unless``."""

    entry: Entry
    unless: tuple[type[EosLogError], ...] = ()

    def apply(self, draft: Draft) -> bool:
        """Append the entry. Raises the error that refuses it, unless it is one of ``unless``."""
        try:
            draft.append(self.entry)
        except self.unless:
            return False
        return True
