"""Owns the model of a service job on its way to a node: claims, lost answers, failover, take-over.
Every move of the row is checked against the real table of states; requests may arrive long after their time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proof.models.checker import Step
from tenuto.lifecycle.service import SERVICE_TRANSITIONS, ServiceState

PLANTED = {
    "failover when silent": "a submission that was not answered is queued again, for any node",
    "no find": "a server that takes a job over chooses a node anew instead of asking the one on record",
    "no key": "the node takes a submission that it has already as a new payload",
    "no fence": "a move is not compared with the claim, so that a frozen server's still counts",
    "late refusal": "a refused connection means `not sent`, also when an earlier try may have arrived",
    "node not on record": "the node is written down after the job was sent",
    "never asked again": "a job whose submission was not answered is left alone",
}
_S = ServiceState
_FINAL = (_S.COMPLETED,)


class Row(NamedTuple):
    state: ServiceState = _S.QUEUED
    claim: int = 0
    owner: int = -1
    node: int = -1


class Server(NamedTuple):
    pc: str = "idle"
    """idle, send, await, find, follow, down"""
    row: Row = Row()
    """As the server saw it last."""
    node: int = -1
    may_be_there: bool = False


class Payload(NamedTuple):
    known: int = 0
    """How many payloads the node made of the job: one, if it knows its key."""
    started: int = 0
    ended: bool = False


class State(NamedTuple):
    servers: tuple[Server, ...]
    nodes: tuple[Payload, ...]
    row: Row = Row()
    flying: tuple[int, ...] = ()
    """Submissions under way, by node; each may arrive at any time, or never."""
    faults: int = 0
    wrong: str | None = None


class Handover:
    """One job, servers that die and freeze, nodes that refuse, and a network that loses and delays."""

    name = "handover to a node"

    def __init__(
        self, *, servers: int = 2, nodes: int = 2, faults: int = 2, planted: str | None = None
    ) -> None:
        assert planted is None or planted in PLANTED
        self._servers = servers
        self._nodes = nodes
        self._faults = faults
        self._planted = planted

    def initial(self) -> State:
        return State((Server(),) * self._servers, (Payload(),) * self._nodes)

    def broken(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        if sum(payload.started for payload in state.nodes) > 1:
            return "the job was started twice"
        if state.row.state in _FINAL and not any(payload.ended for payload in state.nodes):
            return "the job is Completed, and no payload has ended"
        return None

    def at_rest(self, state: State) -> bool:
        return state.row.state in _FINAL

    def show(self, state: State) -> str:
        servers = [f"S{i}:{s.pc}{'?' if s.may_be_there else ''}" for i, s in enumerate(state.servers)]
        nodes = [f"N{j}:{p.known}/{p.started}/{p.ended:d}" for j, p in enumerate(state.nodes)]
        row = f"{state.row.state.value}#{state.row.claim} S{state.row.owner} N{state.row.node}"
        return " ".join([*servers, *nodes, row, f"flying{list(state.flying)}"])

    def steps(self, state: State) -> Iterator[Step[State]]:
        may_fail = state.faults < self._faults
        worse = state._replace(faults=state.faults + 1)
        for i, server in enumerate(state.servers):
            yield from getattr(self, f"_{server.pc}")(state, i, server)
            if server.pc not in ("down", "idle") and may_fail:
                yield Step(f"S{i} is killed", _with(worse, i, Server("down")), True)
        for place, node in enumerate(state.flying):
            flying = (*state.flying[:place], *state.flying[place + 1 :])
            yield Step(f"N{node} gets it", self._taken(state._replace(flying=flying), node))
            if may_fail:
                yield Step(f"it never reaches N{node}", worse._replace(flying=flying), True)
        for node, payload in enumerate(state.nodes):
            if payload.known > payload.started:
                begun = payload._replace(started=payload.started + 1)
                yield Step(f"N{node} starts it", _payload(state, node, begun))
            elif payload.started and not payload.ended:
                yield Step(f"N{node} ends it", _payload(state, node, payload._replace(ended=True)))

    def _taken(self, state: State, node: int) -> State:
        payload = state.nodes[node]
        if payload.known and self._planted != "no key":
            return state
        return _payload(state, node, payload._replace(known=min(payload.known + 1, 2)))

    # A server

    def _down(self, state: State, i: int, s: Server) -> Iterator[Step[State]]:
        yield Step(f"S{i} starts again", _with(state, i, Server()))

    def _idle(self, state: State, i: int, s: Server) -> Iterator[Step[State]]:
        row = state.row
        if row.state is _S.QUEUED:
            for node in range(self._nodes):
                on_record = -1 if self._planted == "node not on record" else node
                claimed = Row(_S.PROCESSING, row.claim + 1, i, on_record)
                yield Step(
                    f"S{i} claims it for N{node}", self._claimed(state, i, claimed, "send", node, False)
                )
        elif row.state.is_active:
            owner = state.servers[row.owner] if row.owner >= 0 else Server("down")
            is_frozen = row.owner != i and owner.pc not in ("down", "idle")
            if is_frozen and state.faults >= self._faults:
                return
            heard = state._replace(faults=state.faults + is_frozen)
            taken = row._replace(claim=row.claim + 1, owner=i)
            if row.state is not _S.PROCESSING:
                after = self._claimed(heard, i, taken, "follow", row.node, True)
            elif row.node < 0 or self._planted == "no find":
                for node in range(self._nodes):
                    chosen = taken._replace(node=node)
                    after = self._claimed(heard, i, chosen, "send", node, False)
                    yield Step(f"S{i} takes it over for N{node}", after, is_frozen)
                return
            else:
                after = self._claimed(heard, i, taken, "find", row.node, True)
            yield Step(f"S{i} takes it over", after, is_frozen)

    def _send(self, state: State, i: int, s: Server) -> Iterator[Step[State]]:
        sent = state._replace(flying=tuple(sorted((*state.flying, s.node))))
        yield Step(f"S{i} sends to N{s.node}", _with(sent, i, s._replace(pc="await", may_be_there=True)))
        if state.faults < self._faults:
            worse = state._replace(faults=state.faults + 1)
            if s.may_be_there and self._planted != "late refusal":
                refused = _with(worse, i, s._replace(pc="find"))
            else:
                refused = self._moved(worse, i, s, _S.QUEUED, "idle")
            yield Step(f"S{i} is refused by N{s.node}", refused, True)

    def _await(self, state: State, i: int, s: Server) -> Iterator[Step[State]]:
        if state.nodes[s.node].known:
            yield Step(f"S{i} is answered", self._moved(state, i, s, _S.SUBMITTED, "follow"))
        # Without an answer in time; which is no fault: the network may be slow.
        if self._planted == "failover when silent":
            yield Step(f"S{i} gives N{s.node} up", self._moved(state, i, s, _S.QUEUED, "idle"))
        elif self._planted != "never asked again":
            yield Step(f"S{i} is not answered", _with(state, i, s._replace(pc="find")))

    def _find(self, state: State, i: int, s: Server) -> Iterator[Step[State]]:
        if state.nodes[s.node].known:
            yield Step(f"S{i} finds it at N{s.node}", self._moved(state, i, s, _S.SUBMITTED, "follow"))
        elif len(state.flying) < 3:
            yield Step(f"S{i} finds nothing at N{s.node}", _with(state, i, s._replace(pc="send")))

    def _follow(self, state: State, i: int, s: Server) -> Iterator[Step[State]]:
        if state.nodes[s.node].ended:
            yield Step(f"S{i} has the result", self._moved(state, i, s, _S.COMPLETED, "idle"))

    def _claimed(self, state: State, i: int, row: Row, pc: str, node: int, may_be_there: bool) -> State:
        return _with(state._replace(row=row), i, Server(pc, row, node, may_be_there))

    def _moved(self, state: State, i: int, s: Server, to: ServiceState, pc: str) -> State:
        """The compare-and-set: a row that another server has claimed since is left alone."""
        is_same = (state.row.state, state.row.claim) == (s.row.state, s.row.claim)
        if not is_same and not (self._planted == "no fence" and to in SERVICE_TRANSITIONS[state.row.state]):
            return _with(state, i, Server())
        if to not in SERVICE_TRANSITIONS[state.row.state]:
            return state._replace(wrong=f"the table forbids {state.row.state.value} -> {to.value}")
        node = -1 if to is _S.QUEUED else s.node
        row = state.row._replace(state=to, node=node)
        return _with(state._replace(row=row), i, s._replace(pc=pc, row=row) if pc != "idle" else Server())


def _with(state: State, i: int, server: Server) -> State:
    return state._replace(servers=(*state.servers[:i], server, *state.servers[i + 1 :]))


def _payload(state: State, node: int, payload: Payload) -> State:
    return state._replace(nodes=(*state.nodes[:node], payload, *state.nodes[node + 1 :]))
