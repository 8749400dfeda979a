#!/usr/bin/env python3
"""The Markdown documents name what is there, and what a user can set is named by a document.

Looked at in every *.md of the repository: options of our programs and scripts, keys of the daemon's
configuration, SYNCD_ variables and constants, syncd_ names (functions, metrics, targets), and links to
files and headings. What is there comes from the programs' help, from `syncd --check-config` and from the
sources.

usage: documents_test.py ROOT BIN_DIR
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

PROGRAMS = ("syncd", "syncctl", "syncbench", "reference_trainer")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
# Options in the documents that are of other programs, by these.
OTHERS = {
    "apt": {"--install-suggests"},
    "cmake": {"--preset", "--build", "--install", "--prefix", "--parallel", "--target", "--component"},
    "valgrind": {"--tool", "--callgrind-out-file", "--collect-atstart", "--toggle-collect"},
    "compilers and pkg-config": {"--cflags", "--libs", "--static"},
    "ctest": {"--output-on-failure", "--parallel"},
    "etcd": {"--max-request-bytes"},
    "git": {"--recursive"},
    "systemd": {"--offline", "--user", "--now", "--system"},
    "torchrun and srun": {"--nnodes", "--nproc-per-node", "--max-restarts", "--rdzv-backend", "--rdzv-endpoint",
                          "--rdzv-id", "--rdzv-conf", "--local-addr", "--nodes", "--ntasks-per-node"},
    "python -m venv and pip": {"--no-build-isolation", "--system-site-packages"},
}
# What looks like a setting and is the name of a file.
FILES = {"store.damaged"}


def markdown(root: pathlib.Path) -> dict[pathlib.Path, str]:
    """Each document by its path below the root."""
    paths = (path.relative_to(root) for path in root.rglob("*.md"))
    return {path: (root / path).read_text() for path in paths
            if path.parts[0] != "build" and not path.parts[0].startswith(".")}


def code_of(text: str) -> list[str]:
    """What is set as code: each line of a block, with continued lines joined, and each `span`."""
    pieces: list[str] = []
    fenced = False
    rest = []
    for line in text.replace("\\\n", " ").split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            pieces.append(line.strip())
        else:
            rest.append(line)
    return pieces + re.findall(r"`([^`]+)`", " ".join(rest))


def anchors(text: str) -> set[str]:
    """What links can name of a document: its headings, in the form that GitHub makes of them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
    return found


def broken_link(root: pathlib.Path, page: pathlib.Path, link: str) -> str:
    """Why a link of a page leads nowhere; empty if it leads somewhere."""
    name, _, anchor = link.partition("#")
    target = (root / page).parent / name if name else root / page
    if not target.exists():
        return f"there is no {name}"
    if anchor and anchor not in anchors(target.read_text()):
        return f"{name or page} has no heading for #{anchor}"
    return ""


class Program:
    """A program's options: its own and those of each command."""

    def __init__(self, words: list[str]) -> None:
        done = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True)
        self.options = {name for line in done.stdout.split("\n")
                        if re.match(r" {2,}-", line) for name in OPTION.findall(line)} | {"--help"}
        self.commands: dict[str, Program] = {}
        listed = re.search(r"^(?i:Subcommands):\n((?:.+\n)+)", done.stdout, re.M)
        for name in re.findall(r"^  ([a-z][a-z-]*) ", listed[1] if listed else "", re.M):
            self.commands[name] = Program([*words, name])

    def lacks(self, words: list[str]) -> list[str]:
        """The options among the words of a command line that no command on it has."""
        known = set(self.options)
        level = self
        for word in words:
            if word in level.commands:
                level = level.commands[word]
                known |= level.options
        # A command line without its command, as prose has it, may mean any.
        if level is self:
            known |= self.all()
        return [option for word in words for option in OPTION.findall(word)[:1]
                if word.startswith("--") and option not in known]

    def all(self) -> set[str]:
        """Its options and those of its commands."""
        return self.options.union(*(command.all() for command in self.commands.values()))


def configuration_keys(bin_dir: pathlib.Path) -> set[str]:
    """Every `section.key` that is in force."""
    shown = subprocess.run([bin_dir / "syncd", "--store", "memory", "--unix", "off", "--check-config"],
                           capture_output=True, text=True, check=True).stdout
    section, keys = "", set()
    for line in shown.split("\n"):
        if line.startswith("["):
            section = line.strip("[] ")
        elif match := re.match(r"(\w+) = ", line):
            keys.add(f"{section}.{match[1]}")
    return keys


def sources(root: pathlib.Path) -> str:
    """All that is no document, joined."""
    parts = []
    for folder in ("daemon", "libclient", "capi", "bindings", "reference_trainer", "proto", "tests",
                   "packaging", "cmake"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix != ".md" and path.stat().st_size < 200_000:
                parts.append(path.read_text(errors="replace"))
    parts += [(root / name).read_text() for name in ("CMakeLists.txt", "CMakePresets.json")]
    return "\n".join(parts)


def main() -> int:
    root, bin_dir = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    documents = markdown(root)
    if len(documents) < 10:
        sys.exit(f"only {len(documents)} documents were found below {root}")
    programs = {name: Program([str(bin_dir / name)]) for name in PROGRAMS if (bin_dir / name).exists()}
    keys = configuration_keys(bin_dir)
    settings = {"SYNCD_" + key.replace(".", "_").upper() for key in keys}  # variables, by one rule
    sections = {key.split(".")[0] for key in keys}
    if len(keys) < 20 or any(len(program.all()) < 5 for program in programs.values()):
        sys.exit("the programs' options or settings could not be read")
    code = sources(root)
    in_code = set(re.findall(r"--[a-z][a-z0-9-]*", code))
    known_options = set().union(in_code, *(program.all() for program in programs.values()), *OTHERS.values())
    names_in_code = set(re.findall(r"\b(?:SYNCD_[A-Z0-9_]+|syncd_[a-z0-9_]+)", code))
    problems = []
    checked = dict.fromkeys(("options of a command line", "options", "keys", "names", "links"), 0)
    for path, text in documents.items():
        for piece in code_of(text):
            for command in re.split(r"[|;&()]|\$\(", piece):
                words = command.split()
                while words and (re.match(r"[A-Z_]+=", words[0]) or words[0] in ("sudo", "$", "env")):
                    words.pop(0)
                name = words[0].rsplit("/", 1)[-1] if words else ""
                if name in programs:
                    checked["options of a command line"] += sum(word.startswith("--") for word in words)
                    for option in programs[name].lacks(words[1:]):
                        problems.append(f"{path}: {name} has no {option}: {piece}")
            for option in OPTION.findall(piece):
                checked["options"] += 1
                if option not in known_options:
                    problems.append(f"{path}: nothing has {option}: {piece}")
            for section, key in re.findall(r"(?<![\w./-])([a-z]+)\.([a-z_]+)\b(?![./(-])", piece):
                if section in sections and f"{section}.{key}" not in FILES:
                    checked["keys"] += 1
                    if f"{section}.{key}" not in keys:
                        problems.append(f"{path}: there is no setting {section}.{key}: {piece}")
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"https?://|mailto:", link):
                continue
            checked["links"] += 1
            if why := broken_link(root, path, link):
                problems.append(f"{path}: the link {link} leads nowhere: {why}")
        for name in re.findall(r"\b(?:SYNCD_[A-Z0-9_]+|syncd_[a-z0-9_]+)", text):
            checked["names"] += 1
            if name.endswith("_"):  # SYNCD_E_* and the like
                known = any(one.startswith(name) for one in names_in_code)
            else:  # a histogram's series have suffixes
                known = name in names_in_code or re.sub(r"_(bucket|sum|count)$", "", name) in names_in_code
            if not known and name not in settings:
                problems.append(f"{path}: nothing is called {name}")
    for what, count in checked.items():
        if count < 20:
            problems.append(f"only {count} {what} were found: does this test still read the documents?")

    # The reverse: what the environment can set, and every setting, is in a document that users get.
    for_users = "\n".join(text for path, text in documents.items()
                          if path.parts[0] not in ("tests", "daemon"))
    for_users += "\n".join(f"{key} " for key in keys)  # the page of syncd.toml is made of them
    read = {name for folder in ("daemon", "libclient", "capi", "bindings", "reference_trainer")
            for path in (root / folder).rglob("*")
            if path.suffix in (".cpp", ".h", ".py") and "tests" not in path.parts
            for name in re.findall(r"[\"'](SYNCD_[A-Z_]+)[\"']", path.read_text(errors="replace"))}
    constants = set(re.findall(r"^ *(?:# *define +)?(SYNCD_[A-Z0-9_]+)",
                               (root / "capi/include/syncd/client.h").read_text(), re.M))
    read = {name for name in read - constants - settings if not name.startswith("SYNCD_TEST_")}
    if len(read) < 10:
        problems.append(f"only {sorted(read)} were found to be read from the environment")
    for name in sorted(read):
        if name not in for_users:
            problems.append(f"no document names {name}, which is read from the environment")
    for problem in problems:
        print(problem)
    print(", ".join(f"{count} {what}" for what, count in checked.items()),
          f"and {len(read)} variables looked at in {len(documents)} documents")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
