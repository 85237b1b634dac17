"""The state of a copy with a new identity."""

from __future__ import annotations

import re
from dataclasses import replace

from eoslog.state.application_versions import is_sink, keys_by_query
from eoslog.state.store_state import LastCommit, StoreState

_OF_ANOTHER_STORE = re.compile(r"@[0-9a-f]{32}\Z")


def with_new_identity(state: StoreState, store_id: str) -> StoreState:
    """Return the state with another store id, in which no streaming query of the source continues by mistake.

    A Spark checkpoint does not know the store that its query writes to. If it were used on both stores, each would lack
    micro-batches of the other. So the versions that streaming queries committed are those of other queries in the copy,
    named ``<query id>@<store id of the source>``. The store refuses the next micro-batch of such a query
    (``CheckpointMismatch``) until the user gives ``startAnewAfter``.

    A copy of the checkpoint at another path commits under another transactional id. For it, the versions also stay
    under their own query ids, so that a micro-batch that the source committed is still recognized.
    """
    source = state.store_id
    versions = dict(state.application_versions)
    for key, last in state.application_versions.items():
        # The aliases of earlier copies stay as they are: no query commits under them.
        if last.query_id is None or _OF_ANOTHER_STORE.search(key.transactional_id):
            continue
        versions[key] = last._replace(query_id=_foreign(last.query_id, source))
        if is_sink(key.transactional_id, key.application_id) and not _OF_ANOTHER_STORE.search(last.query_id):
            alias = key._replace(
                transactional_id=_foreign(key.transactional_id, source),
                application_id=_foreign(key.application_id, source),
            )
            versions[alias] = last
    transactions = {
        name: replace(transaction, last_commit=_of_source(transaction.last_commit, source))
        for name, transaction in state.transactions.items()
    }
    return replace(
        state,
        store_id=store_id,
        application_versions=versions,
        query_versions=keys_by_query(versions),
        transactions=transactions,
    )


def _of_source(commit: LastCommit | None, source: str) -> LastCommit | None:
    work = None if commit is None else commit.application_version
    if commit is None or work is None or work.query_id is None:
        return commit
    renamed = work.model_copy(update={"query_id": _foreign(work.query_id, source)})
    return commit._replace(application_version=renamed)


def _foreign(name: str, source: str) -> str:
    # A name of a copy gets the id of the newest copy. Any other "@" belongs to the name, so two names stay two.
    return f"{_OF_ANOTHER_STORE.sub('', name)}@{source}"
