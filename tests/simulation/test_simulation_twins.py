"""The kernels agree with the readable model: equal successors, broken invariants, and keys under any renaming of replicas."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from kafka_forensics.errors import UsageError
from kafka_forensics.simulation import search, steps
from kafka_forensics.simulation.checker import check, key_of
from kafka_forensics.simulation.model import (
    KIP_320,
    PROTOCOLS,
    Fence,
    Guard,
    LeaderAndIsr,
    ModelRecord,
    ModelReplica,
    ModelState,
    Protocol,
    ProtocolModel,
    Sizes,
    Truncation,
)
from kafka_forensics.simulation.steps import (
    HIGH_WATERMARK,
    ISR,
    LOG,
    QUORUM_ISR,
    REQUESTS,
    WRITTEN,
    RowLayout,
    layout_of,
    members,
    row_of,
    rules_of,
)
from tests.simulation.invariants import PREDICATES

SIZES = st.sampled_from([Sizes(), Sizes(2, 3, 3, 3), Sizes(1, 1, 1, 0), Sizes(4, 3, 5, 4), Sizes(3, 3, 3, 2)])
FENCES = st.sampled_from(range(16)).map(Fence)
ANY_PROTOCOL = st.one_of(
    st.sampled_from(list(PROTOCOLS.values())),
    st.builds(Protocol, st.just("any"), st.sampled_from(Truncation), *[FENCES] * 4, st.sampled_from(range(128)).map(Guard)),
)


def state_of(row: NDArray[np.int64], layout: RowLayout) -> ModelState:
    """The state of a row (fields)."""
    values = [int(value) for value in row]
    replicas, log_size, records, _, width, shared, epochs = (int(value) for value in layout.shape)

    def replica(base: int) -> ModelReplica:
        numbers = [value - 1 for value in values[base + LOG : base + LOG + log_size] if value]
        log = tuple(ModelRecord(number, values[epochs + number] - 1) for number in numbers)
        return ModelReplica(values[base] - 1, values[base + HIGH_WATERMARK], members(values[base + ISR]), log)

    def request(epoch: int) -> LeaderAndIsr:
        position = shared + REQUESTS + 2 * epoch
        return LeaderAndIsr(values[position] - 1 if values[position] else None, members(values[position + 1]))

    return ModelState(
        tuple(replica(number * width) for number in range(replicas)),
        tuple(request(epoch) for epoch in range(values[shared])),
        members(values[shared + QUORUM_ISR]),
        values[shared + WRITTEN],
        members(values[epochs + records]),
    )


def state_after(model: ProtocolModel, choices: list[int]) -> ModelState:
    """The state at the end of a walk; each choice selects the next step."""
    state = model.initial()
    for choice in choices:
        steps_from_state = list(model.successors(state))
        if not steps_from_state:
            break
        state = steps_from_state[choice % len(steps_from_state)][1]
    return state


@given(ANY_PROTOCOL, SIZES, st.booleans(), st.lists(st.integers(0, 1000), max_size=40))
def test_kernels_have_the_successors_of_the_model(protocol: Protocol, sizes: Sizes, history: bool, choices: list[int]) -> None:
    model, layout = ProtocolModel(protocol, sizes, history=history), layout_of(sizes, history=history)
    state = state_after(model, choices)
    row = row_of(state, layout)
    assert state_of(row, layout) == state
    out = np.zeros((layout.max_successors, layout.fields), np.int64)
    expected = Counter(after for _, after in model.successors(state))
    for run in (steps.successors.interpreted, steps.successors.compiled):
        count = run(row, layout.shape, rules_of(protocol, history=history), out)
        assert Counter(state_of(successor, layout) for successor in out[:count]) == expected


@given(ANY_PROTOCOL, SIZES, st.lists(st.integers(0, 1000), max_size=60))
def test_kernels_agree_with_the_invariants(protocol: Protocol, sizes: Sizes, choices: list[int]) -> None:
    state = state_after(ProtocolModel(protocol, sizes, history=True), choices)
    layout = layout_of(sizes, history=True)
    expected = sum(1 << bit for bit, holds in enumerate(PREDICATES.values()) if not holds(state))
    row = row_of(state, layout)
    assert search.broken.interpreted(row, layout.shape) == expected
    assert search.broken.compiled(row, layout.shape) == expected


@given(SIZES, st.lists(st.integers(0, 1000), max_size=40), st.permutations(range(4)))
def test_a_key_does_not_depend_on_replica_names_and_unpacks_to_its_state(
    sizes: Sizes, choices: list[int], order: list[int]
) -> None:
    layout = layout_of(sizes, history=True)
    state = state_after(ProtocolModel(KIP_320, sizes, history=True), choices)
    names = [name for name in order if name < sizes.replicas]
    key = key_of(state, layout)
    assert key_of(renamed(state, names), layout).tolist() == key.tolist()
    row = np.zeros(layout.fields, np.int64)
    search.unpack.interpreted(key.reshape(1, -1), 0, layout.packing, row)
    assert key_of(state_of(row, layout), layout).tolist() == key.tolist()


def renamed(state: ModelState, names: list[int]) -> ModelState:
    """The state with replica r renamed to names[r]."""
    replicas: list[ModelReplica] = list(state.replicas)
    for old, replica in enumerate(state.replicas):
        replicas[names[old]] = replica._replace(isr=frozenset(names[member] for member in replica.isr))
    requests = tuple(
        LeaderAndIsr(None if request.leader is None else names[request.leader], frozenset(names[member] for member in request.isr))
        for request in state.requests
    )
    return state._replace(replicas=tuple(replicas), requests=requests, isr=frozenset(names[member] for member in state.isr))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_plain_search_of_the_model_finds_the_same_number_of_states(name: str) -> None:
    """Without keys, states that differ only in replica names count separately."""
    model = ProtocolModel(PROTOCOLS[name], Sizes(2, 2, 2, 1))
    layout = layout_of(model.sizes, history=False)
    seen = level = {model.initial()}
    while level:
        level = {after for state in level for _, after in model.successors(state)} - seen
        seen = seen | level
    checked = check(model.protocol, model.sizes, history=False)
    assert len({tuple(key_of(state, layout)) for state in seen}) == checked.states
    assert checked.states < len(seen) <= 2 * checked.states


@pytest.mark.parametrize("name", ["truncate-to-hw", "kip-101", "kip-279", "kip-320-first-try"])
def test_only_the_last_state_of_a_trace_breaks_the_invariant(name: str) -> None:
    checked = check(PROTOCOLS[name], Sizes(), until_broken="StrongIsr", history=False)
    trace = checked.verdict("StrongIsr").trace
    model = ProtocolModel(checked.protocol, checked.sizes)
    state = model.initial()
    for step, after in trace:
        assert PREDICATES["StrongIsr"](state)
        assert (step, after) in list(model.successors(state))
        state = after
    assert not PREDICATES["StrongIsr"](state)


def test_a_search_ends_incomplete_at_its_memory_bound() -> None:
    checked = check(KIP_320, Sizes(), history=False, max_bytes=1 << 20)
    assert not checked.complete
    assert 1_000 < checked.states < 123_311
    assert checked.verdict("StrongIsr").holds is None
    broken = check(PROTOCOLS["kip-279"], Sizes(), history=False, max_bytes=4 << 20)
    assert not broken.complete
    assert broken.verdict("StrongIsr").holds is False


@pytest.mark.parametrize(
    "sizes", [replace(Sizes(), replicas=0), replace(Sizes(), replicas=6), Sizes(log_size=0), Sizes(max_epoch=99)]
)
def test_sizes_out_of_bounds_are_refused(sizes: Sizes) -> None:
    with pytest.raises(UsageError):
        check(KIP_320, sizes)
