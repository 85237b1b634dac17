"""Option ``groupId``: a consumer group shows the progress of a stream, as its lag.

The stream never reads the group's offsets. Its position is in its checkpoint. Spark does not give a sink the offsets of
its source, so they cannot be in the slot of the micro-batch. The source commits them after Spark has recorded the end
of the micro-batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from eoslog import Store
from eoslog.errors import EosLogError, RetriableError
from pyspark_eoslog.stream.stream_offsets import StreamOffsets

_logger = logging.getLogger(__name__)


class GroupProgress:
    """The offsets of a stream in its consumer group. Without a group it does nothing."""

    def __init__(self, group_id: str | None) -> None:
        self._group_id = group_id
        self._shown: StreamOffsets | None = None
        self._warned: set[str] = set()

    def show(self, store: Callable[[], Store], done: StreamOffsets) -> None:
        """Commit the end of a finished micro-batch for the group. Offsets of the group never go back.

        An error never ends the stream, because the stream does not depend on the group. It is logged once.

        Args:
            store: returns the store of the stream.
        """
        if self._group_id is None or done.is_initial or done == self._shown:
            return
        try:
            opened = store()
            if opened.describe().store_id != done.store_id:
                # The stream itself reports this.
                return
            opened.admin.advance_consumer_group_offsets(self._group_id, done.offsets, topic_ids=done.topic_ids)
        except EosLogError as error:
            if error.code not in self._warned:
                _logger.warning(
                    "%s. The stream continues, but group %r does not show its progress", error, self._group_id
                )
                self._warned.add(error.code)
            if isinstance(error, RetriableError):
                return
        self._shown = done
