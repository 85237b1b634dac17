"""The scenarios of Kafka's own tests that the conformance suite answers: number, rule, and where a rule does not apply.

A family is one or several of Kafka's test classes. Numbers are kept when a scenario goes, so there are gaps.
"""

from __future__ import annotations

from typing import NamedTuple


class Scenario(NamedTuple):
    number: int
    rule: str
    reason: str = ""
    """Why it does not apply, if no test can state it; empty otherwise."""


class Family(NamedTuple):
    name: str
    source: str
    """Kafka's test classes."""
    scenarios: tuple[Scenario, ...]


_S = Scenario

FAMILIES = (
    Family(
        "Aborted-transaction index",
        "`TransactionIndexTest`",
        (
            _S(1, "An index that is opened again is continued, and read in the order of its markers"),
            _S(3, "The last offset rises with every entry; one that stays or falls is refused"),
            _S(5, "Cutting the index at an offset keeps exactly the entries that end before it"),
            _S(6, "Where nothing was aborted there is no index file, and the index is empty"),
            _S(7, "An index goes on under another name without losing an entry"),
            _S(9, "Two readers of an index do not disturb each other; deleting it twice is no error"),
        ),
    ),
    Family(
        "Producer state",
        "`ProducerStateManagerTest`",
        (
            _S(10, "Sequences follow each other; a new epoch begins at 0, and an old epoch is refused"),
            _S(11, "A marker may be a producer's first entry in a partition. It fences the earlier epochs"),
            _S(13, "A process knows each producer's last sequence also if the beginning of the log is deleted"),
            _S(14, "A marker raises the producer's epoch; the next batch has that epoch and sequence 0"),
            _S(15, "A batch without transaction is refused while its producer has one open"),
            _S(16, "The first unstable offset is known with the place of its row in a file"),
            _S(18, "Whether a transaction is late survives a restart, and ends with the transaction"),
            _S(19, "Preparing an append changes nothing until it is appended"),
            _S(22, "The earliest open transaction holds the last stable offset, also if a later one ends first"),
            _S(23, "The first unstable offset is rebuilt from the log"),
            _S(24, "A snapshot is taken at an offset, also without producers, and not twice at one offset"),
            _S(25, "Snapshots below the log start are deleted; a log begun anew has no state"),
            _S(27, "A fencing abort leaves no open transaction, and its epoch stays to fence"),
            _S(28, "Expired producers are dropped on reload, live ones stay"),
            _S(29, "A producer with an open transaction never expires"),
            _S(30, "A follower takes the log's decisions as they are; a client's gap is refused"),
            _S(31, "Offsets of a group need no sequences and may be written again and again"),
            _S(33, "A coordinator that was replaced is refused, also after a restart"),
            _S(34, "A damaged snapshot is passed over, and the state comes out the same"),
            _S(35, "An end without any rows leaves no open transaction"),
            _S(36, "Stray snapshots are removed, those of live segments are kept"),
            _S(37, "A retried first batch is checked against the lowest sequence and the highest epoch"),
            _S(39, "An unknown producer, or a new epoch, begins at sequence 0 and nowhere else"),
            _S(40, "All fields of a snapshot come back; a flipped bit is noticed"),
        ),
    ),
    Family(
        "Partition log and last stable offset",
        "`UnifiedLogTest`, `LogLoaderTest`, `LogSegmentTest`",
        (
            _S(41, "Idempotent rows without transaction are stable at once"),
            _S(42, "The first row of an open transaction is the first unstable offset until its marker is durable"),
            _S(43, "A read_committed fetch, wherever it begins, never passes the last stable offset"),
            _S(45, "A follower and a rebuild arrive at the same index of aborted transactions"),
            _S(48, "Batches that several producers append at once are checked one by one; duplicates count once"),
            _S(49, "A batch of an older epoch is refused"),
            _S(50, "A marker needs an epoch above the partition's"),
            _S(51, "A coordinator that was replaced cannot end a transaction, not even an empty one"),
            _S(52, "The last stable offset never lies below the log start"),
            _S(53, "An index that cannot be written loses no abort"),
            _S(55, "A transaction over several segments is aborted in all of them"),
            _S(56, "An open transaction is deleted with its log, and only with it"),
            _S(57, "While transactions abort one after the other, read_committed never shows a row"),
            _S(58, "Producer state outlives compaction and deletion of its batches"),
            _S(59, "Snapshots go with their segments"),
            _S(61, "Producers expire after their time, and nothing is left of a deleted topic's"),
            _S(62, "The snapshot of a segment is the state before its first row"),
            _S(63, "After a crash the state is rebuilt from the last good checkpoint and the log"),
            _S(64, "A log that holds a marker of an older coordinator is loaded all the same"),
            _S(65, "Only a current holder of the transactional id can begin a transaction in a partition"),
            _S(66, "The end of one transaction does not touch the next, and an empty one leaves nothing behind"),
            _S(67, "The first batch of an unknown producer begins at sequence 0, at any epoch"),
            _S(68, "A late batch after a time-out is told so by an error that the client recovers from"),
            _S(69, "The producers of a partition are described with epoch, sequence and open transaction"),
        ),
    ),
    Family(
        "Compaction",
        "`LogCleanerTest`, `LogCleanerManagerTest`",
        (
            _S(70, "Compaction drops aborted rows and keeps the offsets and the aborted index"),
            _S(71, "Transactions over several segments are compacted by their outcomes"),
            _S(73, "An ABORT marker stays until its rows are gone and its delete horizon has passed"),
            _S(74, "Over several passes rows go first, then index entries, then markers"),
            _S(75, "A producer's last batch stays, empty, and pins its marker"),
            _S(77, "A user's key that looks like a marker's deletes no marker, and no marker deletes it"),
            _S(78, "Nothing at or above the first open transaction is compacted"),
            _S(79, "A repeat of a batch whose rows were compacted away is still a duplicate"),
        ),
    ),
    Family(
        "Transaction metadata",
        "`TransactionMetadataTest`",
        (
            _S(80, "The first epoch is 0, an init raises it by one, and an exhausted one is never raised"),
            _S(81, "An abort of nothing raises the epoch and ends in COMPLETE_ABORT"),
            _S(83, "The fence of an exhausted epoch uses the last one; nothing that is complete is fenced"),
            _S(
                84,
                "A change of producer id begins at epoch 0 and keeps the id before; never while a transaction is open",
            ),
            _S(86, "A producer that names its epoch goes on, repeats, or is fenced"),
        ),
    ),
    Family(
        "Transaction state manager",
        "`TransactionStateManagerTest`, `TransactionLogTest`",
        (
            _S(87, "A time-out is between 1 ms and the maximum"),
            _S(88, "Every process that loads an id takes its last state in the log"),
            _S(89, "Nothing is served from a load that was cut short"),
            _S(90, "A failed append leaves the state as it was"),
            _S(91, "A repeated append of an end does not reopen the transaction"),
            _S(92, "An append that was overtaken by another producer is fenced and overwrites nothing"),
            _S(93, "Transactions are listed by state, producer id, duration and pattern of the id"),
            _S(94, "Only a transaction in state ONGOING is aborted after its time-out"),
            _S(95, "A process that dies while it ends a transaction leaves it decided or open, never between"),
            _S(96, "Only an id without an open transaction expires, and only if that was appended"),
            _S(98, "An id that never had a transaction expires"),
            _S(99, "A damaged or unknown record ends the load with a clear answer"),
            _S(100, "Every state of a transaction comes back from where it is stored; unknown fields are passed over"),
        ),
    ),
    Family(
        "Transaction coordinator",
        "`TransactionCoordinatorTest`, `TransactionCoordinatorConcurrencyTest`, `TransactionMarkerChannelManagerTest`, "
        "`TransactionMarkerRequestCompletionHandlerTest`, `ProducerIdManagerTest`",
        (
            _S(101, "An init without a transactional id gets a new producer id; an empty id is refused"),
            _S(102, "A producer without two-phase commit cannot keep a prepared transaction"),
            _S(103, "An init at the exhausted epoch gives a new producer id with epoch 0"),
            _S(104, "A partition is added by the current holder only, in any state at rest, and once"),
            _S(105, "Whether a batch belongs to its transaction is checked against the current holder"),
            _S(106, "An end is answered as Kafka does in every state, cell by cell"),
            _S(108, "An init at rest raises the epoch and forgets the partitions"),
            _S(109, "An init while a transaction is open fences it, aborts it and goes on"),
            _S(110, "Failed fences do not use up epochs"),
            _S(111, "An init at the exhausted epoch while a transaction is open fences, then changes the producer id"),
            _S(113, "A repeated init is answered again after a change of producer id; other producers are fenced"),
            _S(114, "A transaction past its time-out is aborted and its epoch raised, or nothing happens"),
            _S(116, "A description lists the known ids, and says which ids are unknown"),
            _S(117, "Of N concurrent inits exactly one keeps a usable epoch; all interleavings end in a legal state"),
            _S(118, "Every partition of a transaction gets its marker once; those deleted meanwhile are skipped"),
            _S(119, "An end whose answer is lost is repeated until its outcome is known, and done once"),
            _S(120, "No producer id is given out twice, also to concurrent callers"),
        ),
    ),
    Family(
        "End to end",
        "`TransactionsTest`, `TransactionsWithTieredStoreTest`, `TransactionsExpirationTest`, "
        "`TransactionsWithMaxInFlightOneTest`, `TransactionsBounceTest`, `ProducerIdExpirationTest`",
        (
            _S(121, "read_committed shows the committed rows, read_uncommitted all rows"),
            _S(122, "A read_committed consumer sees nothing undecided, neither by poll nor by end or time"),
            _S(124, "Consume, transform, produce: every record once, also if transactions abort"),
            _S(125, "A second producer of the same id fences the first at commit, offsets, send and first batch"),
            _S(126, "Offsets in a transaction keep their metadata and leader epoch"),
            _S(127, "When the store does not answer, every call ends in its time, and the producer can be closed"),
            _S(128, "A producer that sends after its transaction timed out is fenced, and none of it is committed"),
            _S(130, "A producer is initialised once"),
            _S(132, "After a failed send and an abort the same producer goes on with a higher epoch"),
            _S(133, "An init that fails fences no producer for ever: the next one works"),
            _S(134, "An abort without rows after a commit succeeds, and the next transaction does, too"),
            _S(135, "A producer whose id expired is told; a new one works"),
            _S(136, "Transactions are exact with one batch in flight"),
            _S(138, "Transactional ids and producer ids expire by times of their own"),
            _S(139, "All of it holds when everything but the active segment lies in sealed segments"),
        ),
    ),
    Family(
        "Reader",
        "`FetcherTest`, `CompletedFetchTest`",
        (
            _S(140, "Aborted rows are left out, committed ones are not"),
            _S(142, "Two aborts of one producer do not hide its next commit"),
            _S(143, "A marker whose rows were compacted away hides nothing"),
            _S(145, "The position moves over aborted rows that yield no record"),
            _S(146, "The position moves over gaps and control rows"),
            _S(148, "read_uncommitted shows aborted rows"),
        ),
    ),
    Family(
        "Producer client",
        "`MockProducerTest`, `TransactionManagerTest`, `KafkaProducerTest`",
        (
            _S(149, "A call out of order is an IllegalState; an empty commit or abort succeeds"),
            _S(150, "Only committed rows are published, and a later abort takes none back"),
            _S(151, "Offsets are published by the commit only, the latest of each partition"),
            _S(152, "A fenced or closed producer refuses every call; a flush after the fence does not raise"),
            _S(154, "The producer goes on with the identity that the end answered, and with sequence 0"),
            _S(155, "A failed batch makes the commit impossible and leaves the abort"),
            _S(157, "A prepared transaction allows only its completion; its prepared state decides"),
            _S(158, "A wrong call leaves the producer usable; an error of its own does not"),
            _S(159, "A transaction that never reached the log is aborted without it"),
        ),
    ),
    Family(
        "Offsets and tools",
        "`OffsetMetadataManagerTest`, `DumpLogSegmentsTest`, `AddPartitionsToTxnManagerTest`",
        (
            _S(160, "Offsets of an open transaction change nothing until it commits, and then count at once"),
            _S(162, "Offsets of a stale member are refused; a group in use is not forgotten"),
            _S(164, "The dump tool prints index, snapshot and control rows, and names damaged parts"),
            _S(165, "Of two epochs of a producer that ask at once, the lower one is refused"),
        ),
    ),
)

SCENARIOS = {scenario.number: scenario for family in FAMILIES for scenario in family.scenarios}
