"""Application versions: the rules that recognize work that was committed before.

An application numbers its work by versions. The state keeps the last committed version of each application and sink.
A version at or below it is a replay, and is not committed twice.

The version alone is not enough. A streaming query numbers its micro-batches from 0. If its checkpoint is lost, a new
query starts at 0 again and brings other rows under the same numbers. An application version therefore names the query,
too.

The job of a stream is named after its query and the location of its checkpoint, so queries never fence each other by
mistake. The application is the location alone: a new query at the location of an earlier one probably replaces a
checkpoint that was lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from eoslog.errors import CheckpointMismatch, ProducerFenced, Replayed
from eoslog.state.draft import Draft
from eoslog.state.store_state import ApplicationVersionKey, LastVersion, StoreState
from eoslog.state.transaction_entries import ApplicationVersion, QueryVersion
from eoslog.wording import counted

_LOCATION_PREFIX = "spark-checkpoint-"
"""The beginning of each name of a checkpoint's location."""


def location_name(path_digest: str, host: str | None) -> str:
    """Return the application id of a stream's sink: the location of the stream's checkpoint.

    Args:
        path_digest: a digest of the checkpoint's path or URL.
        host: the host of a local path; None for a URL that means the same everywhere.
    """
    return f"{_LOCATION_PREFIX}{path_digest}" + ("" if host is None else f"-{host}")


def last_version(
    state: StoreState | Draft, transactional_id: str, application_id: str, sink: str
) -> LastVersion | None:
    """Return the last committed version; None if nothing was committed.

    The version is returned even if ``starts_anew`` says that the application restarts after it.
    """
    return state.application_versions.get(ApplicationVersionKey(transactional_id, application_id, sink))


def remember_version(state: StoreState | Draft, key: ApplicationVersionKey, last: LastVersion) -> None:
    """Store the last version that an application committed, and index it by its streaming query."""
    before = state.application_versions.get(key)
    state.application_versions[key] = last
    query_id = _counted_by(key, last)
    if before is not None and _counted_by(key, before) != query_id:
        others = tuple(each for each in state.query_versions[_counted_by(key, before)] if each != key)
        if others:
            state.query_versions[_counted_by(key, before)] = others
        else:
            del state.query_versions[_counted_by(key, before)]
    known = state.query_versions.get(query_id, ())
    if key not in known:
        state.query_versions[query_id] = tuple(sorted((*known, key)))


def keys_by_query(
    versions: Mapping[ApplicationVersionKey, LastVersion],
) -> dict[str, tuple[ApplicationVersionKey, ...]]:
    """Return the sorted keys of each streaming query's versions. ``remember_version`` maintains the same index."""
    found: dict[str, list[ApplicationVersionKey]] = {}
    for key, last in versions.items():
        found.setdefault(_counted_by(key, last), []).append(key)
    return {query_id: tuple(sorted(keys)) for query_id, keys in found.items()}


def _counted_by(key: ApplicationVersionKey, last: LastVersion) -> str:
    """Return the id of the query that counted a version.

    Old versions name no query. A stream used its query id as the application id then.
    """
    return key.application_id if last.query_id is None else last.query_id


def check_application_version(draft: Draft, transactional_id: str, work: ApplicationVersion | None) -> None:
    """Check that the work was not committed before. A transaction without an application version always passes.

    Raises:
        Replayed: the same query committed this version or a later one before.
        CheckpointMismatch: another streaming query counted the version, or no query did.
    """
    if work is None:
        return
    last = last_version(draft, transactional_id, work.application_id, work.sink)
    if last is not None and not starts_anew(work, last):
        _check_query(transactional_id, work, last)
        if work.version <= last.version:
            raise Replayed(work.application_id, work.version, last.version)


def check_micro_batch(
    draft: Draft, transactional_id: str, work: ApplicationVersion, *, is_holder: bool = False, rows: int | None = None
) -> None:
    """Check that a micro-batch was not committed before, under this transactional id or another.

    The default transactional id comes from the query and the location of its checkpoint. A query whose checkpoint was
    moved therefore continues under another id, and the check follows the query from id to id.

    Spark replays at most the last micro-batch. An earlier one comes from an older copy of the checkpoint, and may hold
    other rows than the rows committed under its number.

    Args:
        is_holder: True if the run has committed under this transactional id and still holds it.
        rows: the micro-batch's number of rows now; None to skip the comparison with the committed number.

    Raises:
        Replayed: it is the last committed micro-batch.
        CheckpointMismatch: it is an earlier micro-batch, it is another query's, or its number of rows has changed. Or
            the query is new, and another query committed from the same location.
        ProducerFenced: another run continues the query under another transactional id.
    """
    own = last_version(draft, transactional_id, work.application_id, work.sink)
    own_counts = own is not None and not starts_anew(work, own)
    if own is not None and own_counts:
        _check_query(transactional_id, work, own)
    before_id, last = _last_of_query(draft, transactional_id, work)
    anew = last is not None and starts_anew(work, last)
    if last is not None and not anew:
        # A new run may continue the query under this id. A run that already holds this id was overtaken: two runs
        # write from two copies of one checkpoint. If it continued, both would commit in turn, each its own rows.
        if is_holder and before_id != transactional_id:
            raise ProducerFenced(
                f"transactional id {transactional_id!r}: another run continues this query under {before_id!r}. Its "
                "checkpoint was probably moved or copied. Stop one of the two runs"
            )
        # Spark never replays more than the last micro-batch, so this is not a replay. To skip it could lose rows.
        if work.version < last.version:
            raise _older_copy(before_id, work, last)
        if work.version == last.version:
            # The same version with another number of rows is other work. To skip it as a replay would lose its rows.
            committed = committed_rows(draft, before_id, work)
            if rows is not None and committed is not None and rows != committed:
                raise _other_rows(before_id, work, last, before=committed, rows=rows)
            raise Replayed(work.application_id, work.version, last.version)
    if last is None:
        before = last_at_location(draft, work.application_id, work.sink)
        if before is not None and not starts_anew(work, before):
            raise _lost_checkpoint(work, before)
    if own is not None and own_counts and work.version <= own.version:
        # The query's last commit is under another id, but it committed here before that. It restarted since, and its
        # versions have reached the versions of this id again. The checks above did not compare them.
        if last is not None and anew:
            raise CheckpointMismatch(
                f"transactional id {transactional_id!r}: micro-batch {own.version} of the same query was also "
                f"committed to {_topic(work)} under this id. For a fresh start choose another transactionalId, "
                f"and {_anew(last)}"
            )
        raise _older_copy(transactional_id, work, own)


def committed_rows(state: StoreState | Draft, transactional_id: str, work: ApplicationVersion) -> int | None:
    """Return how many rows a stream's sink committed in a micro-batch, even if the sink has changed since.

    Returns:
        The number of rows. None if the transactional id has expired, or if its last commit is of other work, for
        example of a ``foreachBatch`` of the same query.
    """
    transaction = state.transactions.get(transactional_id)
    commit = None if transaction is None else transaction.last_commit
    if commit is None or commit.application_version is None:
        return None
    counted = commit.application_version
    if not is_sink(transactional_id, counted.application_id):
        return None
    if (counted.version, counted.query_id) != (work.version, work.query_id):
        return None
    if counted.sink != work.sink:
        # The last commit went to the sink that was configured before or after this one. If this sink has the same
        # version, too, the rows of its own commit are no longer known.
        for key in state.query_versions.get(work.query_id or "", ()):
            of_sink = key.sink == work.sink and key.transactional_id == transactional_id
            if of_sink and is_sink(*key[:2]) and state.application_versions[key].version == work.version:
                return None
    return sum(each.rows for each in commit.rows)


def last_at_location(state: StoreState | Draft, application_id: str, sink: str) -> LastVersion | None:
    """Return the last version that any query committed to a sink from a checkpoint location; None if none did."""
    if not application_id.startswith(_LOCATION_PREFIX):
        return None
    found: list[tuple[int, int, LastVersion]] = []
    for key, last in state.application_versions.items():
        if key.application_id == application_id and key.sink == sink:
            # An id whose last slot is unknown has expired, or writes to another sink. So it was not the last one here.
            slot = _committed_slot(state, key.transactional_id, sink, last)
            found.append((-1 if slot is None else slot, last.version, last))
    return max(found, key=lambda each: each[:2])[2] if found else None


def queries_on_other_hosts(state: StoreState | Draft, application_id: str, host: str, sink: str) -> Iterator[str]:
    """Yield the queries that committed to a sink from a checkpoint at the same path, on other hosts."""
    path = application_id.removesuffix(host)
    for key, last in state.application_versions.items():
        at_path = key.application_id.startswith(path) and key.application_id != application_id
        if at_path and key.sink == sink and last.query_id is not None:
            yield last.query_id


def is_sink(transactional_id: str, application_id: str) -> bool:
    """Return True for the application of a stream's sink, False for that of a ``foreachBatch``.

    The application of a sink is the location of its checkpoint, or the job itself.
    """
    return application_id == transactional_id or application_id.startswith(_LOCATION_PREFIX)


def _lost_checkpoint(work: ApplicationVersion, last: LastVersion) -> CheckpointMismatch:
    """Return the error for the first micro-batch of a query at the location of another query's checkpoint."""
    return CheckpointMismatch(
        f"version {last.version} of {_query(last.query_id)} was committed to {_topic(work)} from the same checkpoint "
        f"location. Version {work.version} of {_query(work.query_id)} is other work, so it was neither committed nor "
        "skipped. If a checkpoint was deleted, restore it. For a fresh start "
        f"{_anew(last)}: then rows that the source delivers again are written again. If both queries are meant to run, "
        "give this one a transactionalId of its own"
    )


def _other_rows(
    transactional_id: str, work: ApplicationVersion, last: LastVersion, *, before: int, rows: int
) -> CheckpointMismatch:
    """Return the error for a replayed micro-batch whose number of rows has changed.

    Spark replays a micro-batch with the same source offsets, unless the checkpoint has lost them.
    """
    return CheckpointMismatch(
        f"transactional id {transactional_id!r}: micro-batch {work.version} was committed to {_topic(work)} with "
        f"{counted(before, 'row')}, and has {rows} now, so its content has changed. Nothing was committed. If a second "
        "driver runs on this checkpoint, stop one of the two and start the query again. If the checkpoint is an older "
        "copy, or has lost its newest entry in 'offsets', restore it. Or "
        f"{_anew(last)}: then rows committed as {work.version} are written again. If the query returns different rows "
        "each time it runs, or its source lost rows, give option failOnDataLoss=false to the sink: then the committed "
        "rows count, and the query continues"
    )


def _older_copy(transactional_id: str, work: ApplicationVersion, last: LastVersion) -> CheckpointMismatch:
    """Return the error for a micro-batch before the last one that its query committed."""
    return CheckpointMismatch(
        f"transactional id {transactional_id!r}: micro-batch {work.version} comes after micro-batch {last.version} "
        f"of the same query was committed to {_topic(work)}, and this micro-batch may hold other rows than those "
        f"committed as {work.version}. Nothing was committed. If a second driver runs on this checkpoint, stop one of "
        "the two and start the query again: no row is lost. Otherwise the checkpoint is an older copy: restore the "
        f"newest checkpoint. Only if there is none, {_anew(last)}: then the query continues from this checkpoint, and "
        "rows committed since are written again"
    )


def starts_anew(work: ApplicationVersion, last: LastVersion) -> bool:
    """Return True if the application asks to restart after exactly this version, and the restart has not happened yet.

    The version carries the option ``startAnewAfter``. A restart happens once for each value of the option.
    """
    after = work.starts_anew_after
    # The last condition makes the restart happen once. After it the versions count up again and may reach the named
    # one a second time. Then that version is a commit of the restarted query, and a repetition of it is a replay.
    return (
        after is not None
        and (after.query_id, after.version) == (last.query_id, last.version)
        and after != last.starts_anew_after
    )


def _committed_slot(state: StoreState | Draft, transactional_id: str, sink: str, last: LastVersion) -> int | None:
    """Return the slot that committed a version; None if it is not the last commit of its transactional id."""
    transaction = state.transactions.get(transactional_id)
    commit = None if transaction is None else transaction.last_commit
    if commit is None or commit.application_version is None:
        return None
    work = commit.application_version
    same = (work.sink, work.version, work.query_id) == (sink, last.version, last.query_id)
    return commit.slot if same else None


def _last_of_query(draft: Draft, transactional_id: str, work: ApplicationVersion) -> tuple[str, LastVersion | None]:
    """Return the last commit of a query and its transactional id.

    Two kinds of commits count. Commits to this sink count under every id: the query may have moved to another id and
    back. Commits under this id count for every sink: the user may have changed the sink. A commit to another sink under
    another id does not count: it belongs to an independent copy of the query.

    Returns:
        The transactional id and its last version. The given id and None if the query has committed nothing.
    """
    found: dict[str, tuple[int | None, LastVersion]] = {}
    for key in draft.query_versions.get(work.query_id or "", ()):
        last = draft.application_versions[key]
        if key.sink != work.sink and (
            key.transactional_id != transactional_id
            or not (last.query_id is None or is_sink(key.transactional_id, key.application_id))
        ):
            continue
        slot = _committed_slot(draft, key.transactional_id, key.sink, last)
        other = found.get(key.transactional_id)
        # One id may have written to several sinks. Only the id's last commit has a slot, and it counts. Without one
        # the highest version counts.
        if other is None or (other[0] is None and (slot is not None or last.version > other[1].version)):
            found[key.transactional_id] = slot, last
    if not found:
        return transactional_id, None
    # Slots order the commits of several ids. Versions do not: after a restart (`startAnewAfter`) they begin again at a
    # lower number. Versions decide only if an id has expired or has committed other work since. In a tie this id wins.
    slots_known = all(slot is not None for slot, _ in found.values())
    before_id = max(
        found, key=lambda each: (found[each][0] if slots_known else found[each][1].version, each == transactional_id)
    )
    return before_id, found[before_id][1]._replace(query_id=work.query_id)


def _check_query(transactional_id: str, work: ApplicationVersion, last: LastVersion) -> None:
    """Check that a version was counted by the query that counted the last one.

    Raises:
        CheckpointMismatch: another query counted it, so its number says nothing about its rows.
    """
    if work.query_id == last.query_id:
        return
    if work.version > last.version and (work.query_id is None or last.query_id is None):
        # A client that does not report its query, such as Spark Connect, may continue the count. It may not repeat a
        # version: without the query nobody can tell a replay from other work.
        return
    names = "transactionalId" if is_sink(transactional_id, work.application_id) else "txnAppId"
    raise CheckpointMismatch(
        f"application {work.application_id!r}: the last commit to {_topic(work)} is version {last.version} of "
        f"{_query(last.query_id)}. Version {work.version} of {_query(work.query_id)} is other work, so it was "
        "neither committed nor skipped. If a checkpoint was deleted, restore it. For a fresh start choose another "
        f"{names}, or {_anew(last)}: then rows that the source delivers again are written again"
    )


def check_same_work(draft: Draft, transactional_id: str, work: ApplicationVersion | None) -> None:
    """Check that a repetition of the last committed version has the committed rows, as far as the log can show it.

    A program may write twice under one version by mistake. To skip the second write would lose its rows.

    A repetition has the same number of rows. Some of its columns may differ, for example a time of arrival, but not all
    columns.
    Within one execution the program has written twice, so there each column counts.

    Raises:
        CheckpointMismatch: it is other work.
    """
    last = None if work is None else last_version(draft, transactional_id, work.application_id, work.sink)
    if work is None or last is None or (work.version, work.query_id) != (last.version, last.query_id):
        return
    if work.rows is None or last.rows is None or starts_anew(work, last):
        return
    what = None
    if work.rows != last.rows:
        what = f"with {counted(last.rows, 'row')}, and this write has {work.rows}"
    elif work.content is not None and last.content is not None:
        now, before = _digests(work.content), _digests(last.content)
        compared = sorted(now.keys() & before.keys())
        differing = [name for name in compared if now[name] != before[name]]
        is_same_execution = work.invocation is not None and work.invocation == last.invocation
        if differing and (is_same_execution or differing == compared):
            what = f"with other values in column {differing[0]!r}"
    if what is None:
        return
    raise CheckpointMismatch(
        f"application {work.application_id!r}: version {work.version} was committed to {_topic(work)} {what}. So this "
        "is another write, and not a repetition. It was neither committed nor skipped. A version counts once for each "
        "topic: write all rows of a version into a topic at once, or give each write a txnAppId of its own. If this is "
        "the same write, and it gives other rows each time it runs, give option failOnDataLoss=false: then the "
        "committed rows count"
    )


def _digests(content: str) -> dict[str, str]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _anew(last: LastVersion) -> str:
    """Return the advice, as part of an error message, how to restart after a version."""
    before = str(last.version) if last.query_id is None else f"{last.query_id}:{last.version}"
    if last.starts_anew_after == QueryVersion(query_id=last.query_id, version=last.version):
        return (
            f"start without a checkpoint under another transactionalId (startAnewAfter='{before}' was given before and "
            "has had its effect)"
        )
    return f"give option startAnewAfter='{before}'"


def _query(query_id: str | None) -> str:
    return "no streaming query" if query_id is None else f"streaming query {query_id}"


def _topic(work: ApplicationVersion) -> str:
    return "the topics that the rows name" if work.sink == "*" else f"topic {work.sink.partition(':')[0]}"
