"""Application tokens: which of an application's versions was committed last, and whether the same work comes again.

A version alone does not tell. A streaming query counts its micro-batches from 0; if its checkpoint is lost, another
query counts from 0 again, and what it brings is not what was committed under these numbers before.
"""

from __future__ import annotations

from collections.abc import Mapping

from eoslog.errors import CheckpointMismatch, ProducerFenced, Replayed
from eoslog.state.draft import Draft
from eoslog.state.store_state import LastVersion, StoreState, TokenKey
from eoslog.state.transaction_entries import ApplicationToken, QueryVersion


def last_version(
    state: StoreState | Draft, transactional_id: str, application_id: str, sink: str
) -> LastVersion | None:
    """The version that was committed last, also if ``starts_anew`` says that it counts no more; None without any."""
    return state.tokens.get(TokenKey(transactional_id, application_id, sink))


def remember_version(state: StoreState | Draft, key: TokenKey, last: LastVersion) -> None:
    """Keep what an application committed last, to be found by its query too."""
    before = state.tokens.get(key)
    state.tokens[key] = last
    query_id = _counted_by(key, last)
    if before is not None and _counted_by(key, before) != query_id:
        others = tuple(each for each in state.query_tokens[_counted_by(key, before)] if each != key)
        if others:
            state.query_tokens[_counted_by(key, before)] = others
        else:
            del state.query_tokens[_counted_by(key, before)]
    known = state.query_tokens.get(query_id, ())
    if key not in known:
        state.query_tokens[query_id] = tuple(sorted((*known, key)))


def keys_by_query(tokens: Mapping[TokenKey, LastVersion]) -> dict[str, tuple[TokenKey, ...]]:
    """The keys of each streaming query's tokens, sorted: what ``remember_version`` keeps up to date."""
    found: dict[str, list[TokenKey]] = {}
    for key, last in tokens.items():
        found.setdefault(_counted_by(key, last), []).append(key)
    return {query_id: tuple(sorted(keys)) for query_id, keys in found.items()}


def _counted_by(key: TokenKey, last: LastVersion) -> str:
    """The query of a token. Before tokens named it, it was a stream's application."""
    return key.application_id if last.query_id is None else last.query_id


def check_token(draft: Draft, transactional_id: str, token: ApplicationToken | None) -> None:
    """Whether the work of a token is still to be done.

    Raises:
        Replayed: this version of the same query, or a later one, was committed before.
        CheckpointMismatch: the version was counted by another streaming query, or by none.
    """
    if token is None:
        return
    last = last_version(draft, transactional_id, token.application_id, token.sink)
    if last is not None and not starts_anew(token, last):
        _check_query(transactional_id, token, last)
        if token.version <= last.version:
            raise Replayed(token.application_id, token.version, last.version)


def check_micro_batch(
    draft: Draft, transactional_id: str, token: ApplicationToken, *, goes_on: bool = False, rows: int | None = None
) -> None:
    """Whether a micro-batch is still to be committed, wherever its query's checkpoint lies by now.

    Spark replays the last micro-batch at most, so an earlier one comes from an older copy of the checkpoint, and may
    hold other rows than those that were committed under its number.

    Args:
        goes_on: the run that asks has committed under this transactional id, and holds it still.
        rows: how many it has now; None if that is of no account.

    Raises:
        Replayed: it is the last one that was committed.
        CheckpointMismatch: it is an earlier one, or another query's, or has another number of rows than it had.
        ProducerFenced: the query goes on in another run, under another transactional id.
    """
    own = last_version(draft, transactional_id, token.application_id, token.sink)
    own_counts = own is not None and not starts_anew(token, own)
    if own is not None and own_counts:
        _check_query(transactional_id, token, own)
    before_id, last = _last_of_query(draft, transactional_id, token)
    anew = last is not None and starts_anew(token, last)
    if last is not None and not anew:
        if goes_on and before_id != transactional_id:
            raise ProducerFenced(
                f"transactional id {transactional_id!r}: another run goes on with this query under {before_id!r}, as "
                "after its checkpoint was moved or copied; stop one of them"
            )
        if token.version < last.version:
            raise _older_copy(before_id, token, last)
        if token.version == last.version:
            before = committed_rows(draft, before_id, token)
            if rows is not None and before is not None and rows != before:
                raise _other_rows(before_id, token, last, before, rows)
            raise Replayed(token.application_id, token.version, last.version)
    if own is not None and own_counts and token.version <= own.version:
        # The query went on elsewhere, and counts up again to what it had committed here.
        if last is not None and anew:
            raise CheckpointMismatch(
                f"transactional id {transactional_id!r}: micro-batch {own.version} of the same query was committed to "
                f"{_topic(token)} under this id too. For a fresh start choose another transactionalId, and "
                f"{_anew(last)}"
            )
        raise _older_copy(transactional_id, token, own)


def committed_rows(state: StoreState | Draft, transactional_id: str, token: ApplicationToken) -> int | None:
    """How many rows a stream's sink committed a micro-batch with, also if the sink was changed since.

    None if the id has committed others since, as a ``foreachBatch`` of the same query, or has expired.
    """
    transaction = state.transactions.get(transactional_id)
    commit = None if transaction is None else transaction.last_commit
    if commit is None or commit.token is None:
        return None
    counted = commit.token
    if (counted.application_id, counted.version, counted.query_id) != (transactional_id, token.version, token.query_id):
        return None
    if counted.sink != token.sink:
        own = last_version(state, transactional_id, transactional_id, token.sink)
        if own is not None and (own.version, own.query_id) == (token.version, token.query_id):
            return None
    return sum(each.rows for each in commit.rows)


def _other_rows(
    transactional_id: str, token: ApplicationToken, last: LastVersion, before: int, rows: int
) -> CheckpointMismatch:
    """Spark gives a query's micro-batch the same offsets again, unless its checkpoint has lost them."""
    return CheckpointMismatch(
        f"transactional id {transactional_id!r}: micro-batch {token.version} was committed to {_topic(token)} with "
        f"{before} rows, and has {rows} now, so it is not the one that was committed. Nothing was committed. If the "
        "checkpoint is an older copy, or its newest entry in 'offsets' was lost, restore it; or "
        f"{_anew(last)}: then rows that were committed as {token.version} are there again. If the query gives other "
        "rows each time it runs, or its source lost some, give option failOnDataLoss=false to the sink: then those "
        "that were committed count, and the query goes on"
    )


def _older_copy(transactional_id: str, token: ApplicationToken, last: LastVersion) -> CheckpointMismatch:
    return CheckpointMismatch(
        f"transactional id {transactional_id!r}: micro-batch {token.version} comes after micro-batch {last.version} of "
        f"the same query was committed to {_topic(token)}: the checkpoint is an older copy, and this micro-batch may "
        f"hold other rows than those committed as {token.version}. Nothing was committed. Restore the newest "
        f"checkpoint. Or {_anew(last)}: then it goes on from this checkpoint, and rows that were committed since are "
        "there again"
    )


def starts_anew(token: ApplicationToken, last: LastVersion) -> bool:
    """Whether exactly this last version is known to who commits, and not to count any more.

    That is so once: who goes on with the same option counts up to that version again, and it may be replayed then.
    """
    after = token.starts_anew_after
    return (
        after is not None
        and (after.query_id, after.version) == (last.query_id, last.version)
        and after != last.starts_anew_after
    )


def _committed_slot(state: StoreState | Draft, transactional_id: str, sink: str, last: LastVersion) -> int | None:
    """The slot that committed a version, if that is the last commit of its transactional id."""
    transaction = state.transactions.get(transactional_id)
    commit = None if transaction is None else transaction.last_commit
    if commit is None or commit.token is None:
        return None
    same = (commit.token.sink, commit.token.version, commit.token.query_id) == (sink, last.version, last.query_id)
    return commit.slot if same else None


def _last_of_query(draft: Draft, transactional_id: str, token: ApplicationToken) -> tuple[str, LastVersion | None]:
    """What a query committed last: to this sink under whatever id, since it may have left an id and come back to it;
    under this id to whatever sink, since its sink may have been changed.

    To another sink under another id writes a copy of the query that goes its own way.
    """
    found: dict[str, tuple[int | None, LastVersion]] = {}
    for key in draft.query_tokens.get(token.query_id or "", ()):
        last = draft.tokens[key]
        if key.sink != token.sink and (key.transactional_id != transactional_id or not _is_of_stream(key, last)):
            continue
        slot = _committed_slot(draft, key.transactional_id, key.sink, last)
        other = found.get(key.transactional_id)
        if other is None or (other[0] is None and (slot is not None or last.version > other[1].version)):
            found[key.transactional_id] = slot, last
    if not found:
        return transactional_id, None
    slots_known = all(slot is not None for slot, _ in found.values())
    before_id = max(
        found, key=lambda each: (found[each][0] if slots_known else found[each][1].version, each == transactional_id)
    )
    return before_id, found[before_id][1]._replace(query_id=token.query_id)


def _is_of_stream(key: TokenKey, last: LastVersion) -> bool:
    """Whether a stream's sink counted it, not the ``foreachBatch`` of one, whose writes have names of their own."""
    return last.query_id is None or key.application_id == key.transactional_id


def _check_query(transactional_id: str, token: ApplicationToken, last: LastVersion) -> None:
    """Raises: CheckpointMismatch"""
    if token.query_id == last.query_id:
        return
    if token.version > last.version and (token.query_id is None or last.query_id is None):
        # Who does not tell the query, as Spark Connect, goes on counting.
        return
    names = "transactionalId" if token.application_id == transactional_id else "txnAppId"
    raise CheckpointMismatch(
        f"application {token.application_id!r}: what was committed last to {_topic(token)} is version {last.version} "
        f"of {_query(last.query_id)}; version {token.version} of {_query(token.query_id)} is not the work that was "
        "counted there, so it was neither committed nor skipped. If a checkpoint was deleted, restore it. For a fresh "
        f"start choose another {names}, or {_anew(last)}: then rows that the source gives again are there again"
    )


def _anew(last: LastVersion) -> str:
    before = str(last.version) if last.query_id is None else f"{last.query_id}:{last.version}"
    if last.starts_anew_after == QueryVersion(query_id=last.query_id, version=last.version):
        return (
            f"begin without a checkpoint under another transactionalId (startAnewAfter='{before}' was given before and "
            "has had its effect)"
        )
    return f"give option startAnewAfter='{before}'"


def _query(query_id: str | None) -> str:
    return "no streaming query" if query_id is None else f"streaming query {query_id}"


def _topic(token: ApplicationToken) -> str:
    return "topics of the rows' choice" if token.sink == "*" else f"topic {token.sink.partition(':')[0]}"
