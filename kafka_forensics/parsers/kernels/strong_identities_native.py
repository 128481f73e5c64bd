"""BLAKE2b of one block of words as machine code: the compiled form of the primitive in `strong_identities`."""

from typing import TYPE_CHECKING, Final

import numpy as np

from kafka_forensics.compiled import compile_function
from kafka_forensics.parsers.kernels.blake2b_native import LAST, PARAMETERS, START, compressed
from kafka_forensics.parsers.kernels.strong_identities import PERSON, WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PERSON_LOW: Final = np.uint64(int.from_bytes(PERSON[:8], "little"))
_PERSON_HIGH: Final = np.uint64(int.from_bytes(PERSON[8:], "little"))
_BYTES: Final = np.uint64(8 * WORDS)


def _digest(words: "NDArray[np.int64]") -> tuple[np.int64, np.int64]:
    h0, h1, h2, h3, h4, h5, h6, h7 = START
    state = (h0 ^ PARAMETERS, h1, h2, h3, h4, h5, h6 ^ _PERSON_LOW, h7 ^ _PERSON_HIGH)
    state = compressed(state, words.view(np.uint64), _BYTES, LAST)
    return np.int64(state[0]), np.int64(state[1])


digest = compile_function(_digest)
