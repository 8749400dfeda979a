"""Reads what our programs print for --help, so that manual pages and completions say the same.

The programs use CLI11, whose text has a fixed shape: a description, a line "Usage: ", blocks of
entries ("Positionals:", "Options:", named groups of options, "Subcommands:"), and a footer of the
program's own. From 2.5 on its shape is a little different (Debian testing), and is made the same first. A
text of another shape is an error, never a page with holes.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess


class HelpError(Exception):
    """A help text could not be read; the message names the program and the line."""


@dataclasses.dataclass
class Option:
    """A flag, an option, or (names == [NAME]) a positional argument."""

    names: list[str]
    value: str = ""  # what it takes, such as "FILE" or "durable|fast"; "" for a flag
    text: str = ""
    default: str = ""
    allowed: str = ""  # such as "1 to 600000"
    environment: str = ""
    repeated: bool = False
    required: bool = False

    @property
    def choices(self) -> list[str]:
        """The words that it takes, if it takes nothing else."""
        words = self.value.split("|")
        return words if len(words) > 1 and all(re.fullmatch(r"[a-z0-9_-]+", w) for w in words) else []

    @property
    def takes_path(self) -> bool:
        if re.search(r"\b(FILE|DIR|PATH)\b", self.value + " " + " ".join(self.names)):
            return True
        # Where the help says only that text is taken.
        words = r"--(ca|certificate|key|token-file|store|output|adjacency|input)$"
        return any(re.match(words, name) for name in self.names) and self.value == "TEXT"


@dataclasses.dataclass
class Command:
    """A program or one of its commands."""

    path: list[str]  # ["syncctl", "job", "create"]
    about: str = ""
    usage: str = ""  # behind the command's name, such as "[OPTIONS] NAME"
    positionals: list[Option] = dataclasses.field(default_factory=list)
    groups: dict[str, list[Option]] = dataclasses.field(default_factory=dict)
    commands: list["Command"] = dataclasses.field(default_factory=list)
    footer: list[str] = dataclasses.field(default_factory=list)

    @property
    def options(self) -> list[Option]:
        return [option for group in self.groups.values() for option in group]

    def walk(self) -> list["Command"]:
        """This command and all below it, in the order of the help."""
        return [self] + [below for command in self.commands for below in command.walk()]


def help_of(program: str, words: list[str]) -> str:
    """What `program words... --help` prints, whoever asks and however wide the terminal is."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    for name in ("LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS"):  # how a build finds its libraries
        if name in os.environ:
            environment[name] = os.environ[name]
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True,
                          env=environment, stdin=subprocess.DEVNULL, timeout=60)
    if done.returncode != 0 or not done.stdout.strip():
        raise HelpError(f"`{' '.join([program, *words])} --help` ended with {done.returncode}: "
                        f"{done.stderr.strip() or 'it printed nothing'}")
    return done.stdout


def _column(lines: list[str], where: str) -> int:
    """The column in which descriptions begin: every command has -h."""
    for line in lines:
        found = re.match(r"  -h,--help +(?=\S)", line)
        if found:
            return found.end()
    raise HelpError(f"{where}: no line for -h,--help, by which the columns are known")


def _entries(lines: list[str], column: int) -> list[tuple[str, str]]:
    """Of a block, what stands on the left and, joined, what stands on the right."""
    entries: list[tuple[str, str]] = []
    for line in lines:
        if re.match(r"  \S", line):
            # A name that leaves no room for its text has it on the next line, even if a blank in it
            # ("in [1 - 9]", "FILE ...") is where the text would begin.
            whole = line[:column].count("[") == line[:column].count("]") and line[column:] != "..."
            if len(line) > column and line[column - 1] == " " and line[column] != " " and whole:
                entries.append((line[:column].strip(), line[column:].strip()))
            else:
                entries.append((line.strip(), ""))
        else:
            name, text = entries[-1]
            entries[-1] = (name, (text + " " + line.strip()).strip())
    return entries


def _option(left: str, text: str) -> Option:
    names_text, _, rest = left.partition(" ")
    option = Option([name for name in names_text.split(",") if name], text=text)
    found = re.search(r"\s*\(Env:(\w+)\)", rest)
    if found:
        option.environment = found[1]
        rest = rest.replace(found[0], "")
    for word, field in (("REQUIRED", "required"), ("...", "repeated")):
        if re.search(r"(^|\s)" + re.escape(word) + r"(\s|$)", rest):
            setattr(option, field, True)
            rest = re.sub(r"(^|\s)" + re.escape(word) + r"(?=\s|$)", "", rest)
    rest = rest.strip()
    found = re.search(r":[A-Z]+ in \[(.+?) - (.+?)\]", rest)
    if found:
        option.allowed = f"{found[1]} to {found[2]}"
        rest = rest.replace(found[0], "", 1)
    found = re.search(r":\{(.*?)\}", rest)
    if found:
        rest = found[1].replace(",", "|") + rest[found.end():]
    rest = re.sub(r" +\[(.*)\]$", r"=\1", rest)  # from 2.5 on
    value, equals, default = rest.partition("=")
    option.value, option.default = value.strip(), default.strip() if equals else ""
    if option.default in ("[]", '""'):
        option.default = ""
    return option


def _as_before(lines: list[str], path: list[str]) -> list[str]:
    """What CLI11 2.5 and later print, as earlier ones print it: "Usage: " before the usage, headings that
    are not in capitals, and names of options that no blanks line up. Other lines stay."""
    result = []
    for line in lines:
        line = line.rstrip()
        words = line.split(" ")
        words[0] = os.path.basename(words[0])  # syncctl is named as it was called, by its path
        if words[:len(path)] == path and words[len(path):len(path) + 1] == ["[OPTIONS]"]:
            line = "Usage: " + line
        if line in ("OPTIONS:", "POSITIONALS:", "SUBCOMMANDS:"):
            line = line.capitalize()
        found = re.match(r"  (-\w), +(--\S+)", line) or re.match(r" {10}()(--\S+)", line)
        if found:
            names = "  " + ",".join(name for name in found.groups() if name)
            line = names.ljust(found.end()) + line[found.end():]
        result.append(line)
    return result


def parse(program: str, path: list[str], text: str) -> Command:
    """One help text; the commands below it come without their own contents."""
    lines = _as_before(text.rstrip("\n").split("\n"), path)
    where = "`" + " ".join(path) + " --help`"
    usage = next((i for i, line in enumerate(lines) if line.startswith("Usage: ")), None)
    if usage is None:
        raise HelpError(f"{where} has no line that begins with 'Usage: '")
    command = Command(path, " ".join(line.strip() for line in lines[:usage]).strip())
    # The program is named as it was called, by its path.
    words = lines[usage][len("Usage: "):].split(" ")
    command.usage = " ".join(words[len(path):])
    column = _column(lines, where)
    i = usage + 1
    while i < len(lines):
        if not lines[i]:
            i += 1
            continue
        heading = re.fullmatch(r"(\S.*):", lines[i])
        end = i + 1
        while end < len(lines) and lines[end].startswith("  "):
            end += 1
        block = lines[i + 1:end]
        if not heading or not block:
            break
        if heading[1] == "Positionals":
            command.positionals = [_option(*entry) for entry in _entries(block, column)]
        elif heading[1] in ("Subcommands", "Commands"):
            command.commands = [Command([*path, name.split(",")[0]], about)
                                for name, about in _entries(block, column)]
        elif block[0].startswith("  -"):
            command.groups[heading[1]] = [_option(*entry) for entry in _entries(block, column)]
        else:
            break
        i = end
    command.footer = lines[i:]
    if not command.options:
        raise HelpError(f"{where} names no option")
    return command


def read(name: str, program: str) -> Command:
    """The whole tree of commands of the file `program`, which users know as `name`."""

    def below(path: list[str]) -> Command:
        command = parse(program, path, help_of(program, path[1:]))
        command.commands = [below(sub.path) for sub in command.commands]
        return command

    return below([name])


@dataclasses.dataclass
class Setting:
    """One key of the daemon's configuration file."""

    key: str
    environment: str
    flag: str
    text: str
    allowed: str


def settings(daemon: Command) -> tuple[list[Setting], list[tuple[str, str]]]:
    """From syncd's help: the settings, and (key, what is allowed) of a declared job."""
    found: list[Setting] = []
    job: list[tuple[str, str]] = []
    lines = daemon.footer
    for i, line in enumerate(lines):
        head = re.fullmatch(r"  ([a-z_]+\.[a-z_0-9]+), (SYNCD_\w+)(?:, (--[a-z-]+))?", line)
        if head:
            if i + 2 >= len(lines) or not lines[i + 2].strip().startswith("allowed: "):
                raise HelpError(f"`syncd --help`: {head[1]} lacks its line 'allowed: '")
            found.append(Setting(head[1], head[2], head[3] or "", lines[i + 1].strip(),
                                 lines[i + 2].strip()[len("allowed: "):]))
        if line.strip().startswith("[[job]]"):
            for below in lines[i + 1:]:
                entry = re.fullmatch(r"      ([a-z_]+): (.*)", below)
                if not entry:
                    break
                job.append((entry[1], entry[2]))
    if not found or not job:
        raise HelpError("`syncd --help` lists no settings")
    return found, job


def defaults(daemon: str) -> dict[str, str]:
    """The settings' defaults, as `syncd --check-config` shows them."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    for name in ("LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS"):
        if name in os.environ:
            environment[name] = os.environ[name]
    done = subprocess.run([daemon, "--store", "memory", "--unix", "off", "--check-config"],
                          capture_output=True, text=True, env=environment, timeout=60,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise HelpError(f"`syncd --check-config` ended with {done.returncode}: {done.stderr.strip()}")
    section, values = "", {}
    for line in done.stdout.splitlines():
        head = re.fullmatch(r"\[(\w+)\]", line)
        entry = re.fullmatch(r"(\w+) = (.*?)  # default", line)
        if head:
            section = head[1]
        elif entry:
            values[f"{section}.{entry[1]}"] = entry[2]
    return values
