"""A type that several threads use for the first time."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import dataclasses, sys, threading
from vrt_lite.reading import describe_types, read_json, read_plain

sys.setswitchinterval(1e-6)
INNER = [dataclasses.make_dataclass(f"Inner{n}", [("x", int)]) for n in range(400)]
for number in range(0, 400, 20):
    fields = [(f"f{n}", INNER[number + n]) for n in range(20)]
    kind = dataclasses.make_dataclass(f"Outer{number}", fields)
    made = kind(*(inner(1) for _, inner in fields))
    data = {name: {"x": 1} for name, _ in fields}
    text = str(data).replace("'", '"').encode()
    start = threading.Barrier(8)

    def read(of):
        start.wait()
        if of % 4 == 0:
            assert read_json(text, kind) == made
        elif of % 4 == 2:
            assert read_plain(data, kind) == made
        else:
            describe_types([kind], ref_template="{name}")

    threads = [threading.Thread(target=read, args=(of,)) for of in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("read")
"""


def test_several_threads_use_a_type_for_the_first_time() -> None:
    """Without a lock msgspec 0.22 ends the process: one of six servers that got their first requests at once."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr
