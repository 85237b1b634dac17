"""Differences from Kafka, by the number of the scenario; its tests state the rule as it is here."""

from __future__ import annotations

DIFFERENCES = {
    13: "a process that opens the log begins with a checkpoint, and takes nothing on trust.",
    23: "an offset that was given out is never taken back: an earlier stretch of the log stands for a truncated one.",
    28: "a batch of an expired producer id is refused, unless it asks to register the id at sequence 0. "
    "Kafka takes any first sequence then, and with it a late copy.",
    33: "there is no coordinator epoch. An entry of a late process is checked at the log's tail.",
    37: "there is no entry to be verified: a batch is checked in the slot that appends it.",
    48: "a follower folds entries by the same rules, so a duplicate in the log changes nothing.",
    50: "there is no transaction version 0.",
    52: "the log start stops at the last stable offset. Kafka's moves into an open transaction, whose rows are lost.",
    53: "the index is derived. The abort counts without it, and writing goes on.",
    56: "nothing is truncated: an open transaction is deleted with its topic.",
    64: "such a record changes nothing for readers, and no process appends after it.",
    65: "there is no guard: the check and the append are one slot.",
    95: "prepared states are never at rest, so there are no markers to be sent again.",
    99: "an unknown type of entry may decide a row, so the store is refused. Kafka skips the record.",
    101: "every process is the coordinator of all ids. A process that cannot read the log says why.",
    102: "two-phase commit is served. Kafka's coordinator answers UNSUPPORTED_VERSION.",
    105: "there is no request that only verifies: a batch that fails the check is refused itself.",
    106: "PREPARE_* is passed through within a slot, so CONCURRENT_TRANSACTIONS is never answered.",
    109: "the init is answered at once. Kafka's caller has to come again.",
    111: "the end takes epoch 0 of the new producer id and the init epoch 1, in one slot.",
    116: "DEAD is never stored: an id is there, or it is not.",
    118: "markers stand in the slot that ends the transaction. They are not sent.",
    120: "no blocks are fetched: a producer id is the number of its slot.",
    125: "offsets of eoslog's own producers make no request, so the commit refuses those of a fenced one.",
    127: "offsets are passed without a request; the commit with them ends in its time.",
    135: "partitions know a producer for as long as its transactional id lives, not for the time of producer ids.",
    136: "a producer has one append in flight, with all batches that are due; there is nothing to be configured.",
    138: "the state of a producer with a transactional id expires with this id in all partitions, in one slot.",
    139: "merging and sealing change no rows: segments stand for those in remote storage.",
    142: "a repeated abort places no second marker.",
    155: "a record that send() itself refuses hinders no commit. In Kafka the future has the error.",
    157: "an init that keeps a prepared transaction aborts one that is open and not prepared. Kafka keeps it, too.",
    160: "offsets of eoslog's own producers stand in the slot that ends their transaction, so they are pending only "
    "while it is prepared. Those of a client of Kafka's protocol are pending from their addition on.",
    165: "nothing is queued: each batch is checked in its own slot, so the first to come has been appended.",
}
