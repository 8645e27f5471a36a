"""Builds multipart bodies, right and wrong ones."""

from __future__ import annotations

BOUNDARY = b"xYzZy"
CONTENT_TYPE = "multipart/form-data; boundary=xYzZy"


def field(name: str, value: str | bytes) -> bytes:
    content = value if isinstance(value, bytes) else value.encode()
    return (
        b'--xYzZy\r\nContent-Disposition: form-data; name="'
        + name.encode()
        + b'"\r\n\r\n'
        + content
        + b"\r\n"
    )


def file(
    filename: bytes | str, content: bytes = b"echo\n", name: bytes = b"files", headers: bytes = b""
) -> bytes:
    raw = filename if isinstance(filename, bytes) else filename.encode()
    head = b'Content-Disposition: form-data; name="' + name + b'"; filename="' + raw + b'"\r\n' + headers
    return b"--xYzZy\r\n" + head + b"\r\n" + content + b"\r\n"


END = b"--xYzZy--\r\n"


def body(*parts: bytes) -> bytes:
    return b"".join(parts) + END


def good(script: bytes = b"echo hello\n", user: str = "1", service: str = "example") -> bytes:
    return body(field("user_id", user), field("service", service), file("run.sh", script))
