"""Packs small files into tar archives, and encodes texts as file names."""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Mapping

_LONGEST = 120


def quoted(text: str) -> str:
    """Returns a file name for any text: a text that is not a valid name is encoded in base 32."""
    if text and len(text) <= _LONGEST and all(each.isascii() and (each.isalnum() or each in "-_") for each in text):
        return text
    return "=" + base64.b32encode(text.encode()).decode().rstrip("=").lower()


def unquoted(name: str) -> str:
    """Returns the text of a name."""
    if not name.startswith("="):
        return name
    coded = name[1:].upper()
    return base64.b32decode(coded + "=" * (-len(coded) % 8)).decode()


def tar(files: Mapping[str, bytes]) -> bytes:
    """Packs files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, contents in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(contents)
            archive.addfile(entry, io.BytesIO(contents))
    return out.getvalue()


def untar(archive: bytes) -> dict[str, bytes]:
    """Unpacks files."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        for entry in opened:
            contents = opened.extractfile(entry) if entry.isfile() else None
            if contents is not None:
                files[entry.name.removeprefix("./")] = contents.read()
    return files
