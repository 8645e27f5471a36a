"""Owns the model of a termination: a user ends a service job while it is claimed, sent, run, or about to end.
Every move is checked against the real tables of states of jobs and payloads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from proof.models.checker import Step
from tenuto.lifecycle.service import PAYLOAD_TRANSITIONS, SERVICE_TRANSITIONS, PayloadState, ServiceState

PLANTED = {
    "killed unseen": "a queued job is Killed without a look whether it was claimed meanwhile",
    "killed at once": "an active job is Killed in the row, and its node is told later",
    "wish forgotten": "a server that takes a job over does not look whether its end was asked for",
    "told once": "a node that did not answer is not told again",
    "wish in memory": "a node keeps the wish in memory only, and loses it when it is killed",
    "wish before start": "a node that is told before the program runs forgets the wish",
    "end overwritten": "a job whose program ended first is Killed all the same",
    "answered early": "the user is told Killed as soon as the wish is noted",
}
_S, _P = ServiceState, PayloadState


class Row(NamedTuple):
    state: ServiceState = _S.QUEUED
    claim: int = 0
    wish: bool = False


class Server(NamedTuple):
    pc: str = "idle"
    """idle, send, sent, follow, down"""
    row: Row = Row()
    is_told: bool = False
    """The node knows the wish, as far as this server knows."""


class Node(NamedTuple):
    state: PayloadState | None = None
    wish: bool = False
    is_up: bool = True
    started: int = 0


class User(NamedTuple):
    pc: str = "happy"
    """happy, asked (a queued job was seen), waits, answered"""
    answer: str = ""


class State(NamedTuple):
    row: Row = Row()
    server: Server = Server()
    node: Node = Node()
    users: tuple[User, ...] = (User(), User())
    faults: int = 0
    first_end: PayloadState | None = None
    """How the program ended by itself, before its node was told."""
    wrong: str | None = None


class Terminate:
    """One job, one server that is killed and started again, one node, two users who end the job."""

    name = "termination against dispatch and end"

    def __init__(self, *, faults: int = 2, planted: str | None = None) -> None:
        assert planted is None or planted in PLANTED
        self._faults = faults
        self._planted = planted

    def initial(self) -> State:
        return State()

    def broken(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        row, node = state.row, state.node
        if node.started > 1:
            return "the program was started twice"
        if row.state.is_final and node.state in (_P.PREPARED, _P.RUNNING):
            return f"the job is {row.state.value} while its program may still run"
        if row.state is _S.KILLED and state.first_end is not None:
            return "the job is Killed, though its program had ended before its node was told"
        if row.state is _S.COMPLETED and node.state is not _P.COMPLETED:
            return "the job is Completed, and its program is not"
        for user in state.users:
            if user.answer and user.answer != row.state.value:
                return f"a user was told {user.answer}, and the job is {row.state.value}"
        return None

    def at_rest(self, state: State) -> bool:
        """An asked-for end has come, and both users have their answer."""
        return state.row.state.is_final and all(user.answer for user in state.users)

    def show(self, state: State) -> str:
        row, server, node = state.row, state.server, state.node
        at_node = node.state.value if node.state else "-"
        return (
            f"{row.state.value}#{row.claim}{'!' if row.wish else ''} S:{server.pc} "
            f"N:{at_node}{'!' if node.wish else ''}{'' if node.is_up else ' down'} "
            f"users {[user.answer or user.pc for user in state.users]}"
        )

    def steps(self, state: State) -> Iterator[Step[State]]:
        yield from self._users(state)
        yield from getattr(self, f"_{state.server.pc}")(state, state.server)
        yield from self._node(state)
        if state.faults < self._faults:
            worse = state._replace(faults=state.faults + 1)
            if state.server.pc not in ("idle", "down"):
                yield Step("the server is killed", worse._replace(server=Server("down")), True)
            if state.node.is_up and state.node.state is not None:
                wish = state.node.wish and self._planted != "wish in memory"
                down = state.node._replace(is_up=False, wish=wish)
                yield Step("the node is killed", worse._replace(node=down), True)

    # Users

    def _users(self, state: State) -> Iterator[Step[State]]:
        for i, user in enumerate(state.users):
            if user.pc == "happy":
                yield Step(f"user {i} ends the job", self._asked(state, i))
            elif user.pc == "asked":  # only with a planted bug: the transaction in two halves
                killed = state.row._replace(state=_S.KILLED, wish=True)
                yield Step(
                    f"user {i} kills it", _user(state._replace(row=killed), i, User("answered", "Killed"))
                )
            elif user.pc == "waits" and state.row.state.is_final:
                yield Step(f"user {i} is answered", _user(state, i, User("answered", state.row.state.value)))

    def _asked(self, state: State, i: int) -> State:
        """`Requests.terminate`, one transaction."""
        row = state.row
        if row.state.is_final:
            return _user(state, i, User("answered", row.state.value))
        if row.state is _S.QUEUED:
            if self._planted == "killed unseen":
                return _user(state, i, User("asked"))
            killed = row._replace(state=_S.KILLED, wish=True)
            return _user(state._replace(row=killed), i, User("answered", "Killed"))
        if self._planted == "killed at once":
            killed = row._replace(state=_S.KILLED, wish=True)
            return _user(state._replace(row=killed), i, User("answered", "Killed"))
        noted = state._replace(row=row._replace(wish=True))
        early = self._planted == "answered early"
        return _user(noted, i, User("answered", "Killed") if early else User("waits"))

    # The server

    def _down(self, state: State, s: Server) -> Iterator[Step[State]]:
        yield Step("the server starts again", state._replace(server=Server()))

    def _idle(self, state: State, s: Server) -> Iterator[Step[State]]:
        row = state.row
        if row.state is _S.QUEUED:
            claimed = row._replace(state=_S.PROCESSING, claim=row.claim + 1)
            yield Step("the server claims it", state._replace(row=claimed, server=Server("send", claimed)))
        elif row.state.is_active:
            taken = row._replace(claim=row.claim + 1)
            seen = taken._replace(wish=False) if self._planted == "wish forgotten" else taken
            pc = "find" if row.state is _S.PROCESSING else "follow"
            yield Step("the server takes it over", state._replace(row=taken, server=Server(pc, seen)))

    def _find(self, state: State, s: Server) -> Iterator[Step[State]]:
        if state.node.is_up:
            pc = "send" if state.node.state is None else "sent"
            yield Step(f"the server asks for it: {pc}", state._replace(server=s._replace(pc=pc)))

    def _send(self, state: State, s: Server) -> Iterator[Step[State]]:
        if self._knows_wish(state, s):
            yield Step("the server does not send it", self._moved(state, s, _S.KILLED))
        if not state.node.is_up:
            return
        node = state.node if state.node.state else state.node._replace(state=_P.PREPARED)
        yield Step("the server sends it", state._replace(node=node, server=s._replace(pc="sent")))

    def _sent(self, state: State, s: Server) -> Iterator[Step[State]]:
        yield Step("the row is Submitted", self._moved(state, s, _S.SUBMITTED))

    def _follow(self, state: State, s: Server) -> Iterator[Step[State]]:
        node = state.node
        if self._knows_wish(state, s) and not s.is_told:
            told = s._replace(is_told=True)
            if node.is_up:
                yield Step("the node is told", state._replace(node=self._killed(node), server=told))
            if state.faults < self._faults:
                lost = told if self._planted == "told once" else s
                worse = state._replace(faults=state.faults + 1, server=lost)
                yield Step("the node does not hear it", worse, True)
            if self._planted == "end overwritten":
                killed = self._moved(state, s, _S.KILLED)
                if node.state not in (_P.PREPARED, _P.RUNNING):
                    yield Step("the server ends it", killed)
        if not node.is_up:
            return
        if node.state is _P.RUNNING and s.row.state is _S.SUBMITTED:
            yield Step("the row is Running", self._moved(state, s, _S.RUNNING))
        for end, to in _ENDS.items():
            if node.state is end:
                yield Step(f"the row is {to.value}", self._moved(state, s, to))

    def _knows_wish(self, state: State, s: Server) -> bool:
        """The follower's event: set by the row it began with, or while it follows."""
        if self._planted == "wish forgotten" and state.row.claim > 1:
            return s.row.wish
        return state.row.wish

    def _moved(self, state: State, s: Server, to: ServiceState) -> State:
        """The compare-and-set on state and claim."""
        row = state.row
        if (row.state, row.claim) != (s.row.state, s.row.claim):
            return state._replace(server=Server())
        if to not in SERVICE_TRANSITIONS[row.state]:
            return state._replace(wrong=f"the table forbids {row.state.value} -> {to.value}")
        moved = row._replace(state=to)
        follows = s._replace(pc="follow", row=moved)
        return state._replace(row=moved, server=Server() if to.is_final else follows)

    # The node

    def _killed(self, node: Node) -> Node:
        if node.state is _P.PREPARED and self._planted == "wish before start":
            return node
        return node._replace(wish=True)

    def _node(self, state: State) -> Iterator[Step[State]]:
        node = state.node
        if not node.is_up:
            yield Step("the node starts again", state._replace(node=node._replace(is_up=True)))
            # Its programs go on without it.
        if node.state is _P.PREPARED and node.is_up:
            running = node._replace(started=node.started + 1)
            if not node.wish:
                yield Step("the program starts", _payload(state, running, _P.RUNNING))
            else:
                yield Step("the program is never started", _payload(state, node, _P.KILLED))
        if node.state is _P.RUNNING and node.is_up and node.wish:
            yield Step("the program is killed", _payload(state, node, _P.KILLED))
        if node.state is _P.RUNNING and node.is_up and not node.wish and state.faults < self._faults:
            # It may never end by itself: nothing may depend on it.
            for end in (_P.COMPLETED, _P.FAILED):
                ended = _payload(state, node, end)._replace(first_end=end)
                yield Step(f"the program ends: {end.value}", ended, True)


_ENDS = {_P.COMPLETED: _S.COMPLETED, _P.FAILED: _S.FAILED, _P.KILLED: _S.KILLED}


def _user(state: State, i: int, user: User) -> State:
    return state._replace(users=(*state.users[:i], user, *state.users[i + 1 :]))


def _payload(state: State, node: Node, to: PayloadState) -> State:
    if node.state is None or to not in PAYLOAD_TRANSITIONS[node.state]:
        return state._replace(wrong=f"the table forbids {node.state} -> {to.value}")
    return state._replace(node=node._replace(state=to))
