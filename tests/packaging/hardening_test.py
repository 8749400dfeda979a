#!/usr/bin/env python3
"""What makes a defect harder to use for an attack is in every program and library that is installed.

The build is installed, and each ELF file is looked at with readelf: relocations that are read-only once
they are bound, which is at the start; programs that may lie anywhere; a stack that nothing is run from,
with guards; checked buffers, in an optimised build; no search path but beside the file itself; and on
x86-64 landing marks for indirect jumps (of -fcf-protection) at all functions that others call, and in the
objects of static libraries. The note of a linked file, which a kernel would look at, depends on how the
distribution has built the C library's start files, too, and is left out.

First, programs each of which lacks one of these are compiled, and the lack must be noticed.

usage: hardening_test.py BUILD_DIR CMAKE CC BUILD_TYPE
"""

from __future__ import annotations

import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
import tempfile

EXPECTED = ("syncd", "syncctl", "syncbench", "reference_trainer", "libsyncclient.so", "libsyncd.so")
LANDING = b"\xf3\x0f\x1e\xfa"  # endbr64
# What calls no function that has a checked counterpart with a buffer of known size.
NO_BUFFERS = ("libsyncd_trainer_cuda.so", "syncd-cluster.so")

PROBE = """#include <stdio.h>
#include <string.h>
int main(int count, char** words) {
  char text[16];
  strcpy(text, words[count - 1]);
  return puts(text) < 0;
}
"""
FLAGS = ("-O2 -fPIE -pie -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 "
         "-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack")
# What spoils a program, and what must be said of it.
SPOILT = {
    "-Wl,-z,norelro": "has no read-only relocations (GNU_RELRO)",
    "-Wl,-z,lazy": "binds lazily: its relocations stay writable (no BIND_NOW)",
    "-fno-pie -no-pie": "is not position-independent",
    "-Wl,-z,execstack": "has an executable stack",
    "-fno-stack-protector": "has no guarded stack (__stack_chk_fail is not imported)",
    "-U_FORTIFY_SOURCE": "has no checked buffers (no function __*_chk is imported)",
    "-Wl,-rpath,/opt/elsewhere": "looks for libraries in /opt/elsewhere",
}
SPOILT_X86 = {"-fcf-protection=none": "has functions without a landing mark (endbr64): main"}


def readelf(*words: str | pathlib.Path) -> str:
    """What it prints."""
    return subprocess.run(["readelf", "--wide", *words], capture_output=True, text=True, check=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def functions(symbols: str) -> dict[str, int]:
    """Where the defined global functions of a symbol table lie, by name."""
    found = re.findall(r"^ *\d+: ([0-9a-f]+) +\S+ FUNC +GLOBAL +(?:DEFAULT|PROTECTED) +\d+ ([^\s@]+)",
                       symbols, re.M)
    return {name: int(address, 16) for address, name in found}


def unmarked(path: pathlib.Path, headers: str, entries: dict[str, int]) -> list[str]:
    """The functions that do not begin with a landing mark."""
    segments = [tuple(int(number, 16) for number in numbers) for numbers in re.findall(
        r"^ *LOAD +(0x[0-9a-f]+) (0x[0-9a-f]+) 0x[0-9a-f]+ (0x[0-9a-f]+)", headers, re.M)]
    content = path.read_bytes()
    lacking = []
    for name, address in sorted(entries.items()):
        places = [offset + address - start for offset, start, size in segments
                  if start <= address < start + size]
        if not places or content[places[0]:places[0] + len(LANDING)] != LANDING:
            lacking.append(name)
    return lacking


def lacks_of(path: pathlib.Path, optimised: bool) -> list[str]:
    """What a program or a shared library lacks, in words."""
    headers = readelf("--file-header", "--program-headers", "--dynamic", path)
    symbols = readelf("--dyn-syms", path)
    program = " INTERP " in headers
    lacks = []
    if " GNU_RELRO " not in headers:
        lacks.append("has no read-only relocations (GNU_RELRO)")
    if not re.search(r"\(BIND_NOW\)|\(FLAGS\) .*\bBIND_NOW\b|\(FLAGS_1\) .*\bNOW\b", headers):
        lacks.append("binds lazily: its relocations stay writable (no BIND_NOW)")
    if not re.search(r"Type: +DYN ", headers) or (
            program and not re.search(r"\(FLAGS_1\) .*\bPIE\b", headers)):
        lacks.append("is not position-independent")
    stack = re.search(r"^ *GNU_STACK +(?:0x[0-9a-f]+ +){5}([RWE ]+?) +0", headers, re.M)
    if not stack or "E" in stack[1]:
        lacks.append("has an executable stack")
    imported = set(re.findall(r" UND ([^\s@]+)", symbols))
    if "__stack_chk_fail" not in imported:
        lacks.append("has no guarded stack (__stack_chk_fail is not imported)")
    checked = any(re.fullmatch(r"__\w+_chk", name) for name in imported)
    if optimised and path.name not in NO_BUFFERS and not checked:
        lacks.append("has no checked buffers (no function __*_chk is imported)")
    for listed in re.findall(r"\((?:RPATH|RUNPATH)\) .*\[(.*)\]", headers):
        for folder in dict.fromkeys(listed.split(":")):
            if not folder.startswith(("$ORIGIN", "${ORIGIN}")):
                lacks.append(f"looks for libraries in {folder or 'the working directory'}")
    if "X86-64" in headers:
        entries = functions(symbols)
        if program:
            defined = functions(readelf("--symbols", path))
            entries = {name: defined[name] for name in ("main",) if name in defined}
        if not entries:
            lacks.append("has no function that could be looked at")
        if without := unmarked(path, headers, entries):
            lacks.append(f"has functions without a landing mark (endbr64): {', '.join(without[:5])}")
    return lacks


def lacks_of_archive(path: pathlib.Path) -> list[str]:
    """The objects of a static library that were compiled without landing marks."""
    parts = re.split(r"^File: .*\((.*)\)$", readelf("--file-header", "--notes", path), flags=re.M)
    objects = list(zip(parts[1::2], parts[2::2]))
    if not objects:
        return ["has no objects"]
    return [f"has an object without landing marks (IBT, SHSTK): {name}" for name, text in objects
            if "X86-64" in text and not re.search(r"x86 feature: .*IBT.*SHSTK", text)]


def notices(work: pathlib.Path, compiler: str) -> list[str]:
    """What is wrong with this test: of programs that lack one thing each, it must say just that."""
    source, program = work / "probe.c", work / "probe"
    source.write_text(PROBE)

    def compiled(*flags: str) -> list[str]:
        subprocess.run([compiler, *FLAGS.split(), *flags, "-o", program, source], check=True)
        return lacks_of(program, optimised=True)

    x86 = platform.machine() in ("x86_64", "AMD64")
    right = ["-fcf-protection"] if x86 else []
    wrong = [f"this test finds fault with a good program: it {lack}" for lack in compiled(*right)]
    for spoiling, expected in {**SPOILT, **(SPOILT_X86 if x86 else {})}.items():
        found = compiled(*right, *shlex.split(spoiling))
        if found != [expected]:
            wrong.append(f"of a program with {spoiling}, this test says {found} and not that it {expected}")
    return wrong


def main() -> int:
    build_dir, cmake, compiler, build_type = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="syncd-test.") as name:
        work = pathlib.Path(name)
        problems = notices(work, compiler)
        prefix = work / "installed"
        done = subprocess.run([cmake, "--install", build_dir, "--prefix", prefix],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"the build could not be installed: {done.stdout}{done.stderr}")
        files = [path for path in sorted(prefix.rglob("*")) if path.is_file() and not path.is_symlink()]
        linked = [path for path in files if path.open("rb").read(4) == b"\x7fELF"]
        archives = [path for path in files if path.suffix == ".a"]
        for expected in EXPECTED:
            if not any(path.name == expected or path.name.startswith(expected + ".") for path in linked):
                problems.append(f"{expected} is not among what was installed")
        for path in linked:
            lacks = lacks_of(path, optimised=build_type != "Debug")
            problems += [f"{path.relative_to(prefix)} {lack}" for lack in lacks]
        for path in archives:
            problems += [f"{path.relative_to(prefix)} {lack}" for lack in lacks_of_archive(path)]
    for problem in problems:
        print(problem)
    print(f"{len(linked)} programs and shared libraries and {len(archives)} static libraries looked at")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
