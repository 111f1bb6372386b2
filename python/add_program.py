"""Adds a program to the scripts of a wheel: python3 add_program.py WHEEL PROGRAM"""

import base64
import hashlib
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path


def add(wheel: Path, program: Path) -> None:
    data = program.read_bytes()
    with zipfile.ZipFile(wheel) as read, tempfile.NamedTemporaryFile(dir=wheel.parent, delete=False) as made:
        names = read.namelist()
        record = next(name for name in names if name.endswith(".dist-info/RECORD"))
        place = f"{record.split('/')[0].removesuffix('.dist-info')}.data/scripts/{program.name}"
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as write:
            for item in read.infolist():
                if item.filename not in (record, place):
                    write.writestr(item, read.read(item.filename))
            added = zipfile.ZipInfo(place, date_time=(1980, 1, 1, 0, 0, 0))
            added.external_attr = 0o100755 << 16
            added.compress_type = zipfile.ZIP_DEFLATED
            write.writestr(added, data)
            lines = [line for line in read.read(record).decode().splitlines() if not line.startswith(f"{place},")]
            lines.insert(len(lines) - 1, f"{place},sha256={digest},{len(data)}")
            write.writestr(record, "\n".join(lines) + "\n")
    shutil.copymode(wheel, made.name)
    Path(made.name).replace(wheel)


if __name__ == "__main__":
    add(Path(sys.argv[1]), Path(sys.argv[2]))
