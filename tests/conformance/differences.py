"""What is otherwise here than in Kafka, by the number of the scenario; its tests state the rule as it is here."""

from __future__ import annotations

DIFFERENCES = {
    13: "a process that opens the log begins with a checkpoint, and takes nothing on trust.",
    23: "an offset that was given out is never taken back: an earlier stretch of the log stands for a truncated one.",
    28: "a batch of an expired producer id is refused. Kafka takes any first sequence then, and with it a late copy.",
    33: "there is no coordinator epoch. Whatever a late coordinator would write is judged at the log's tail.",
    37: "there is no entry to be verified: a batch is judged in the slot that appends it.",
    48: "a follower folds entries by the same rules, so a duplicate that stands in the log is inert for it.",
    50: "transaction version 2 is the only one.",
    52: "the log start stops at the last stable offset. Kafka's moves into an open transaction, whose rows are lost.",
    53: "the index is derived. The abort counts without it, and writing goes on.",
    56: "nothing is truncated: what takes an open transaction along is the deletion of its topic.",
    64: "such a record is inert for all readers, and writers are stopped by it.",
    65: "there is no guard: the check and the append are one slot.",
    95: "prepared states are never at rest, so there are no markers to be sent again.",
    99: "an unknown type of entry may decide a row, so the store is refused. Kafka skips the record.",
    101: "every process is the coordinator of all ids; one that cannot read the log says why.",
    102: "two-phase commit is served. Kafka's coordinator answers UNSUPPORTED_VERSION.",
    105: "there is no request that only verifies: a batch that fails the check is refused itself.",
    106: "PREPARE_* is passed through within a slot, so CONCURRENT_TRANSACTIONS is never answered.",
    109: "the init is answered at once. Kafka's caller has to come again.",
    111: "the end takes epoch 0 of the new producer id and the init epoch 1, in one slot.",
    116: "DEAD is never stored: an id is there, or it is not.",
    118: "markers stand in the slot that ends the transaction; there is nobody to send them to.",
    120: "no blocks are fetched: a producer id is the number of its slot.",
    142: "a repeated abort places no second marker.",
    160: "offsets stand in the slot that ends their transaction, so they are pending only while it is prepared.",
    165: "nothing is queued: each batch is judged in its own slot, so the first to come has been appended.",
}
