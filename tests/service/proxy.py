"""A proxy between a server and its node that loses, delays and cuts answers, and counts what passes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable


class Proxy:
    """Passes HTTP on, one connection a request; `spoil(n, request)` says what happens to the n-th answer.

    None: nothing. "drop": it never arrives. "cut": half of it does. "slow": it comes late. "twice": it comes
    twice. "again": the request is sent to the node a second time, and the second answer is passed on.
    """

    def __init__(self, target: str, spoil: Callable[[int, bytes], str | None]) -> None:
        host, _, port = target.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._spoil = spoil
        self._count = 0
        self._guard = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join()
        for thread in self._threads:
            thread.join(60)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            thread.start()
            self._threads.append(thread)

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as node:
            client.settimeout(60)
            node.settimeout(60)
            try:
                request = _request(client)
                if not request:
                    return
                with self._guard:
                    self._count += 1
                    fate = self._spoil(self._count, request)
                answer = self._answer(node, request)
                if fate == "again":
                    with socket.create_connection(self._target) as second:
                        second.settimeout(60)
                        answer = self._answer(second, request)
                if fate == "drop":
                    return
                if fate == "slow":
                    time.sleep(0.2)
                client.sendall(answer[: len(answer) // 2] if fate == "cut" else answer)
                if fate == "twice":
                    client.sendall(answer)
            except OSError:
                return

    def _answer(self, node: socket.socket, request: bytes) -> bytes:
        node.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        answer = b""
        while piece := node.recv(65536):
            answer += piece
        return answer


def _request(client: socket.socket) -> bytes:
    """One whole request: headers, and as much body as they say."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lowered = head.lower()
    if b"transfer-encoding: chunked" in lowered:
        while not data.endswith(b"0\r\n\r\n"):
            data += client.recv(65536)
        return data
    length = 0
    for line in lowered.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        piece = client.recv(65536)
        body += piece
        data += piece
    return data
