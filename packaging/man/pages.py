"""Fills the pages' sources (*.md) with what the programs say of themselves.

A source is Markdown (see roff.py) whose lines {{...}} stand for something generated:

  {{synopsis}}          how the program, and each of its commands, is called
  {{options}}           the program's own options, by their groups
  {{commands}}          each command with its arguments, options and notes
  {{about}}             what the program says it is
  {{notes}}             the footer of the help, less what other lines of the source took
  {{note WORDS}}        the paragraph of the footer that begins with these words and a colon
  {{settings}}          every key of the daemon's configuration file
  {{jobs}}              the keys of [[job]]
  {{declarations FILE}} the functions of a public header, under its own headings
  {{statuses FILE}}     the status codes of a public header
"""

from __future__ import annotations

import pathlib
import re
import sys

from help_text import Command, HelpError, Option, defaults, settings
from roff import Page, escape, inline

# Of a program that has no source of its own.
DEFAULT_SOURCE = """# NAME
{name} - {about}
# SYNOPSIS
{{{{synopsis}}}}
# DESCRIPTION
{{{{about}}}}
# OPTIONS
{{{{options}}}}
{commands}# NOTES
{{{{notes}}}}
# SEE ALSO
`syncd`(8), `syncctl`(1)
"""


def option_head(option: Option) -> str:
    """How an option is written, in roff."""
    value = f" \\fI{escape(option.value)}\\fR" if option.value else ""
    if not option.names[0].startswith("-"):
        return f"\\fI{escape(option.names[0])}\\fR"
    return ", ".join(f"\\fB{escape(name)}\\fR" for name in option.names) + value


def option_text(option: Option) -> str:
    """What an option means, and what else the help says of it."""
    facts = []
    if option.allowed:
        facts.append(option.allowed)
    if option.default:
        facts.append(f"default {option.default}")
    if option.repeated and "repeated" not in option.text:
        facts.append("may be repeated")
    if option.environment:
        facts.append(f"or the environment variable {option.environment}")
    text = option.text.replace("`", "'").rstrip(".")
    return text + (f" ({'; '.join(facts)})" if facts else "")


def paragraphs(lines: list[str]) -> list[list[str]]:
    """A footer, cut where a line is empty or a new label begins."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if not line:
            parts.append([])
            continue
        if re.match(r"[A-Z][A-Za-z ]{2,24}: ", line) or (line.startswith("Environment, ")):
            parts.append([])
        parts[-1].append(line)
    return [part for part in parts if part]


def own_footer(command: Command, common: list[list[str]]) -> list[str]:
    """A command's footer without what every command of the program says."""
    lines: list[str] = []
    for part in paragraphs(command.footer):
        if part not in common:
            lines += part + [""]
    return lines


class Writer:
    """Writes the page of one program, or of a file format or library."""

    def __init__(self, programs: dict[str, Command], files: dict[str, str], include: pathlib.Path):
        self._programs = programs
        self._files = files
        self._include = include

    def write(self, page: Page, name: str, source: str | None) -> str:
        command = self._programs.get(name)
        if source is None:
            if command is None:
                raise HelpError(f"there is neither a program nor a source for the page {name}")
            source = DEFAULT_SOURCE.format(
                name=name, about=command.about.rstrip("."),
                commands="# COMMANDS\n{{commands}}\n" if command.commands else "")
        footer = paragraphs(command.footer) if command else []
        taken = re.findall(r"^\{\{note (.+)\}\}$", source, re.MULTILINE)
        block: list[str] = []

        def flush() -> None:
            page.markdown(block)
            block.clear()

        lines = source.splitlines()
        for i, line in enumerate(lines):
            directive = re.fullmatch(r"\{\{(\w+)(?: (.+))?\}\}", line)
            if i > 0 and lines[i - 1] == "# NAME":
                flush()
                page.line(line)
            elif not directive:
                block.append(line)
            else:
                flush()
                self._fill(page, command, footer, taken, directive[1], directive[2] or "")
        flush()
        return page.text()

    def _fill(self, page: Page, command: Command | None, footer: list[list[str]],
              taken: list[str], what: str, argument: str) -> None:
        if what in ("settings", "jobs"):
            self._settings(page, what)
            return
        if what in ("declarations", "statuses"):
            text = (self._include / argument).read_text()
            if what == "declarations":
                declarations(page, text)
            else:
                statuses(page, text)
            return
        if command is None:
            raise HelpError(f"{{{{{what}}}}} stands on a page that is no program's")
        if what == "synopsis":
            synopsis(page, command)
        elif what == "about":
            page.paragraph(command.about.replace("`", "'"))
        elif what == "options":
            for group, options in command.groups.items():
                if len(command.groups) > 1:
                    page.subsection(group)
                for option in options:
                    page.term(option_head(option), option_text(option))
        elif what == "commands":
            for below in command.walk()[1:]:
                describe(page, below, footer)
        elif what == "note":
            part = next((part for part in footer if part[0].startswith(argument)), None)
            if part is None:  # the tests of the pages miss the section
                print(f"warning: `{command.path[0]} --help` has no paragraph '{argument}' any more, "
                      "for which the source of its page asks", file=sys.stderr)
                return
            first = re.sub(r"^" + re.escape(argument) + r"[^:]*: ", "", part[0])
            page.plain([first[:1].upper() + first[1:], *part[1:]])
        elif what == "notes":
            for part in footer:
                if part[0].startswith("Settings: ") and command.path[0] == "syncd":
                    continue  # syncd.toml(5)
                if not any(part[0].startswith(words) for words in taken):
                    page.plain(part)
        else:
            raise HelpError(f"nothing is known of {{{{{what}}}}}")

    def _settings(self, page: Page, what: str) -> None:
        found, job = settings(self._programs["syncd"])
        if what == "jobs":
            for key, allowed in job:
                page.term(f"\\fB{escape(key)}\\fR", allowed.replace("`", "'"))
            return
        values = defaults(self._files["syncd"])
        section = ""
        for setting in found:
            table, _, key = setting.key.partition(".")
            if table != section:
                section = table
                page.subsection(f"[{table}]")
            other = f"Environment: `{setting.environment}`."
            if setting.flag:
                other += f" Flag: `{setting.flag}`."
            default = values.get(setting.key, "")
            # Where files are depends on who runs the daemon: the source says it.
            if default and "/" not in default and "(default" not in setting.text:
                other = f"Default: `{default}`. " + other
            text = setting.text[:1].upper() + setting.text[1:]
            page.term(f"\\fB{escape(key)}\\fR", text.replace("`", "'") + ".",
                      f"Allowed: {setting.allowed}.".replace("`", "'"), other)


def synopsis(page: Page, command: Command) -> None:
    """A line for each thing that can be called."""
    for each in command.walk():
        if each.commands and each is not command and not each.positionals:
            continue  # a word that only other words follow
        usage = each.usage.replace("SUBCOMMAND", "COMMAND").replace("[OPTIONS]", "[options]")
        if each is command and command.commands:
            usage = "[options] COMMAND ..."
        words = "\\fB" + escape(" ".join(each.path)) + "\\fR " + inline(usage.replace("`", "'"))
        page._lines += [".br", words] if each is not command else [words]


def describe(page: Page, command: Command, common: list[list[str]]) -> None:
    """One command under COMMANDS."""
    page.subsection(" ".join([*command.path[1:], *(p.names[0] for p in command.positionals)]))
    page.paragraph(command.about.replace("`", "'").rstrip(".") + ".")
    options = [option for option in command.options if "--help" not in option.names]
    for option in command.positionals + options:
        page.term(option_head(option), option_text(option))
    page.plain(own_footer(command, common))


def declarations(page: Page, header: str) -> None:
    """The functions of a header, under the headings that its comments make."""
    pattern = re.compile(r"/\* ---- (.+?) -+ \*/|^SYNCD_API ([^;]+;)", re.MULTILINE)
    heading, block, count = "", [], 0

    def flush() -> None:
        if block:
            if heading:
                page.subsection(heading)
            page.example(block)

    for found in pattern.finditer(header):
        if found[1]:
            flush()
            heading, block = found[1].split(":")[0].rstrip(), []
        else:
            words = " ".join(found[2].split())
            block += wrap_declaration(words)
            count += 1
    flush()
    if count == 0:
        raise HelpError("a public header declares no function that could be found")


def wrap_declaration(text: str, width: int = 72) -> list[str]:
    """One declaration, broken between arguments as a header would be."""
    lines, line = [], ""
    for part in re.findall(r"[^,]+(?:, |;|$|,)", text):
        if line and len(line) + len(part.rstrip()) > width:
            lines.append(line.rstrip())
            line = "    "
        line += part
    return lines + [line.rstrip()]


def statuses(page: Page, header: str) -> None:
    """The codes, with their numbers and what they mean."""
    found = re.findall(r"^  (SYNCD_(?:OK|E_\w+)) = (-?\d+),?\s*(?:/\* (.*?) \*/)?$", header,
                       re.MULTILINE)
    if not found:
        raise HelpError("a public header lists no status codes")
    for name, number, text in found:
        meaning = text or "done"
        page.term(f"\\fB{name}\\fR ({escape(number)})", meaning[:1].upper() + meaning[1:] + ".")
