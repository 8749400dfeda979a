"""Writes man(7) pages out of the little Markdown that the pages' sources use.

Known: `# SECTION`, `## subsection`, paragraphs, fenced or indented examples, lists with "- ", and
terms with what they mean (a line, then one that begins with ": "). In a text `code` is bold and
*word* is italic. Anything else is an error of the page's author.
"""

from __future__ import annotations

import re


def escape(text: str) -> str:
    """Text as roff takes it literally; minus signs stay what a shell takes for one."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    # Long words, such as the forms of policies, may be broken where their parts begin.
    return re.sub(r"\S{40,}", lambda word: re.sub(r"(?<=[,|+/\])])(?=\w|\[)", r"\\:", word[0]), text)


def guard(line: str) -> str:
    """A line that roff must not take for a request."""
    return "\\&" + line if line.startswith((".", "'")) else line


def inline(text: str) -> str:
    """`code` and *emphasis* of one paragraph."""
    out = []
    for part in re.split(r"(`[^`]+`|(?<![\w*])\*[A-Za-z][^*]*\*(?![\w*]))", text):
        if part.startswith("`") and part.endswith("`") and len(part) > 2:
            out.append("\\fB" + escape(part[1:-1]) + "\\fR")
        elif part.startswith("*") and part.endswith("*") and len(part) > 2:
            out.append("\\fI" + escape(part[1:-1]) + "\\fR")
        else:
            out.append(escape(part))
    return "".join(out)


class Page:
    """One page, written from top to bottom."""

    def __init__(self, name: str, section: str, version: str, date: str, manual: str) -> None:
        self._lines = [
            ".\\\" Generated from the programs' own help and packaging/man; do not edit.",
            f'.TH {name.upper()} {section} "{date}" "syncd {version}" "{manual}"',
            ".nh",
            ".ad l",
        ]

    def section(self, title: str) -> None:
        self._lines.append(f'.SH "{escape(title)}"')

    def subsection(self, title: str) -> None:
        self._lines.append(f'.SS "{escape(title)}"')

    def _gap(self) -> None:
        """Room before what follows, where a heading has not made it."""
        if not self._lines[-1].startswith((".SH", ".SS")):
            self._lines.append(".PP")

    def paragraph(self, text: str) -> None:
        self._gap()
        self._lines.append(guard(inline(text)))

    def line(self, text: str) -> None:
        """A line of a section that has no paragraphs: NAME."""
        self._lines.append(guard(inline(text)))

    def term(self, head: str, *texts: str) -> None:
        """`head` is roff already, so that it can mix bold and italic."""
        self._lines += [".TP", guard(head)]
        for i, text in enumerate(text for text in texts if text):
            self._lines += ([".br"] if i else []) + [guard(inline(text))]

    def item(self, text: str) -> None:
        self._lines += [".IP \\(bu 2", guard(inline(text))]

    def example(self, lines: list[str]) -> None:
        self._gap()
        self._lines += [".in +2n", ".nf"]
        self._lines += [guard(escape(line)) for line in lines]
        self._lines += [".fi", ".in"]

    def plain(self, lines: list[str]) -> None:
        """A program's own text: its paragraphs are filled, what it indents stays as it is."""
        block: list[str] = []

        def flush() -> None:
            if block:
                self._gap()
                self._lines.append(guard(escape(" ".join(block))))
                block.clear()

        i = 0
        while i < len(lines):
            line = lines[i]
            if line.startswith("  "):
                flush()
                end = i
                while end < len(lines) and lines[end].startswith("  "):
                    end += 1
                self.example([text[2:] for text in lines[i:end]])
                i = end
                continue
            if not line or re.match(r"[A-Z][A-Za-z ]{2,24}: ", line):
                flush()
            if line:
                block.append(line.strip())
            i += 1
        flush()

    def markdown(self, lines: list[str]) -> None:
        i = 0
        while i < len(lines):
            line = lines[i]
            end = i + 1
            if not line.strip():
                i += 1
                continue
            if line.startswith("## "):
                self.subsection(line[3:])
            elif line.startswith("# "):
                self.section(line[2:])
            elif line.startswith("```"):
                while not lines[end].startswith("```"):
                    end += 1
                self.example(lines[i + 1:end])
                end += 1
            elif line.startswith("    "):
                while end < len(lines) and lines[end].startswith("    "):
                    end += 1
                self.example([text[4:] for text in lines[i:end]])
            else:
                while end < len(lines) and lines[end].strip() and not lines[end].startswith(("- ", "# ")):
                    if lines[end].startswith(": ") and end > i + 1:
                        break
                    end += 1
                text = " ".join(part.strip() for part in lines[i:end])
                if line.startswith("- "):
                    self.item(text[2:])
                elif end > i + 1 and lines[i + 1].startswith(": "):
                    what = " ".join(part.strip() for part in lines[i + 1:end])
                    self.term(inline(lines[i].strip()), what[2:])
                else:
                    self.paragraph(text)
            i = end

    def text(self) -> str:
        """The page, without headings under which nothing came."""
        lines = self._lines
        kept = [line for i, line in enumerate(lines)
                if not (line.startswith(".SH") and (i + 1 == len(lines) or lines[i + 1].startswith(".SH")))]
        return "\n".join(kept) + "\n"
