"""Memory that is used again: weft.gateway.allocator, each time in a process of its own."""

import os
import platform
import subprocess
import sys

import pytest

from weft.gateway.allocator import is_configured

SIZE = 40_000_000
"""Bytes: more than glibc takes from its heap unless it is told to."""

FAULTS = f"""
import resource
from weft.gateway.allocator import return_free_memory, reuse_large_blocks

def copied():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray({SIZE})
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

print(reuse_large_blocks(), copied() and copied())
some = [bytearray({SIZE}) for _ in range(5)]
some[:-1] = []  # the last keeps the heap from shrinking by itself
before = resident()
return_free_memory()
print(before - resident())
"""


def run(**environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if not is_configured({name: value})}
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, env=kept | environment, capture_output=True, check=True)
    return done.stdout.decode().splitlines()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_large_blocks_are_used_again_and_at_last_returned() -> None:
    first, returned = run()
    done, faults = first.split()
    assert done == "True"
    assert int(faults) < SIZE // 4096 // 10, "its pages are there already"
    assert int(returned) > 3 * SIZE


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_ARENA_MAX", "4"), ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1000000")],
)
def test_what_the_environment_says_stays(name: str, value: str) -> None:
    done, _ = run(**{name: value})[0].split()
    assert done == "False"
