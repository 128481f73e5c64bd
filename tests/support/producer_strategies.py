"""Random logs for the producer and transaction folds: mostly orderly, with every disorder mixed in, hostile numbers included."""

from hypothesis import strategies as st

from tests.support.producer_log import ABORT, COMMIT, CONTROL, TRANSACTIONAL, Log

_TOP = 2**63 - 1
_WILD = st.sampled_from([-(2**63), -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**62, _TOP])
_WILD_COLUMNS = (
    "base_offset",
    "last_offset",
    "last_offset_delta",
    "max_timestamp",
    "base_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "control_record_type",
)
_DAY = 86_400_000


@st.composite
def logs(draw: st.DrawFn, *, most: int = 60) -> Log:
    """A log of up to `most` steps by three producers."""
    log = Log(offset=draw(st.integers(0, 50)))
    sequences = {1: 0, 2: 2**31 - 20, 2**62 + 1: 5}
    epochs = dict.fromkeys(sequences, 0)
    for _ in range(draw(st.integers(0, most))):
        action = draw(st.sampled_from(_ACTIONS))
        producer = draw(st.sampled_from(list(sequences)))
        _act(draw, action, log, producer, epochs, sequences)
    return log


_ACTIONS = (
    *["data"] * 8,
    *["transactional"] * 6,
    *["marker"] * 4,
    *["plain", "again", "jump", "skip", "bump", "old", "pause", "rotten", "lost", "roll", "wild", "cleaned"],
)


def _act(draw: st.DrawFn, action: str, log: Log, producer: int, epochs: dict[int, int], sequences: dict[int, int]) -> None:
    epoch = epochs[producer]
    count = draw(st.integers(1, 4))
    if action == "marker":
        log.marker(producer, epoch + draw(st.integers(0, 1)), draw(st.sampled_from([ABORT, COMMIT])))
    elif action == "cleaned":
        log.add(producer_id=producer, producer_epoch=epoch, attributes=TRANSACTIONAL | CONTROL)
    elif action == "plain":
        log.add(count)
    elif action == "again" and log.rows and not (row := draw(st.sampled_from(log.rows))).lost:
        given = {column.name.lower(): value for column, value in row.values.items()}
        given["position"] = log.position
        if draw(st.booleans()):
            given |= {"base_offset": log.offset, "last_offset": min(log.offset + max(given["last_offset_delta"], 0), _TOP)}
        log.add(1, **given)
    elif action == "jump":
        log.offset = max(0, log.offset + draw(st.integers(-8, 8)))
    elif action == "skip":
        sequences[producer] = (sequences[producer] + draw(st.integers(-9, 9))) % 2**31
    elif action in ("bump", "old"):
        epochs[producer] = max(0, epoch + (1 if action == "bump" else -1))
        sequences[producer] = draw(st.sampled_from([0, sequences[producer]]))
    elif action == "pause":
        log.timestamp += draw(st.sampled_from([_DAY - 1001, _DAY - 1000, _DAY, -5000]))
    elif action == "rotten":
        log.rotten(count)
    elif action == "lost":
        log.lost()
    elif action == "roll":
        log.roll()
    elif action == "wild":
        given = {draw(st.sampled_from(_WILD_COLUMNS)): draw(_WILD)}
        given = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequences[producer]} | given
        base, delta = given.get("base_offset", log.offset), given.get("last_offset_delta", 0)
        given.setdefault("last_offset", max(-(2**63), min(base + delta, _TOP)))
        log.add(1, attributes=draw(st.sampled_from([0, TRANSACTIONAL, TRANSACTIONAL | CONTROL])), **given)
    else:
        attributes = TRANSACTIONAL if action == "transactional" else 0
        log.data(producer, epoch, sequences[producer], count, attributes=attributes)
        sequences[producer] = (sequences[producer] + count) % 2**31
