"""Completions for bash, zsh and fish out of a program's tree of commands.

All three find the command that stands on the line so far as the longest known sequence of words, and
offer its options, those of the program, and the words or files that may follow.
"""

from __future__ import annotations

import shlex

from help_text import Command, Option

BANNER = "# Completion of {name}; generated from its --help."


def all_of(command: Command) -> dict[str, str]:
    """The files' texts by their suffixes."""
    return {"bash": bash(command), "zsh": zsh(command), "fish": fish(command)}


def _offered(root: Command, command: Command) -> list[Option]:
    """The options that may stand behind a command: its own, and the program's."""
    options = list(command.options)
    known = {name for option in options for name in option.names}
    if command is not root:
        options += [option for option in root.options if not known & set(option.names)]
    return options


def _takes_path(command: Command) -> bool:
    return any(option.takes_path for option in command.positionals)


def _path(command: Command) -> str:
    return " ".join(command.path)


def _function(root: Command) -> str:
    return "_" + root.path[0].replace("-", "_")


def quoted(text: str) -> str:
    """In quotes even where bash would not need them: a word alone looks like a command."""
    return "'" + text.replace("'", "'\\''") + "'"


def bash(root: Command) -> str:
    commands = root.walk()
    lines = [BANNER.format(name=root.path[0]), "", f"{_function(root)}() {{",
             "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}",
             f"  local command={shlex.quote(root.path[0])} options='' words='' files=''", "  COMPREPLY=()"]
    if len(commands) > 1:
        paths = "|".join(shlex.quote(_path(command)) for command in commands[1:])
        lines += ["  local i", "  for ((i = 1; i < COMP_CWORD; i++)); do",
                  "    case \"$command ${COMP_WORDS[i]}\" in",
                  f"      {paths}) command=\"$command ${{COMP_WORDS[i]}}\" ;;",
                  "    esac", "  done"]
    lines += ["  case \"$command\" in"]
    for command in commands:
        lines += [f"    {shlex.quote(_path(command))})"]
        offered = _offered(root, command)
        lines += ["      case \"$before\" in"]
        for option in offered:
            if not option.value:
                continue
            names = "|".join(option.names)
            if option.choices:
                action = f'words={quoted(" ".join(option.choices))}'
            elif option.takes_path:
                action = "files=1"
            else:
                action = "return"
            lines += [f"        {names}) {action} ;;"]
        names_all = " ".join(name for option in offered for name in option.names)
        below = " ".join(sub.path[-1] for sub in command.commands)
        files = "; files=1" if _takes_path(command) else ""
        lines += [f"        *) options={quoted(names_all)}; words={quoted(below)}{files} ;;",
                  "      esac", "      ;;"]
    lines += ["  esac",
              "  if [[ $current == -* && $options ]]; then",
              "    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\")",
              "    return", "  fi",
              "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")",
              "  if [[ $files ]]; then",
              "    compopt -o filenames 2>/dev/null",
              "    mapfile -t -O \"${#COMPREPLY[@]}\" COMPREPLY < <(compgen -f -- \"$current\")",
              "  fi", "}", f"complete -F {_function(root)} {root.path[0]}", ""]
    return "\n".join(lines)


def _short(text: str, limit: int = 70) -> str:
    """The beginning of a description, on one line."""
    text = text.split("; ")[0].split(": ")[0].replace("`", "'")
    return text if len(text) <= limit else text[:limit - 3].rstrip() + "..."


def _zsh_text(text: str) -> str:
    """Within [...] or ((...)) of _arguments."""
    out = _short(text)
    for character in "\\:[]()\"'":
        out = out.replace(character, " " if character in "\"'" else "\\" + character)
    return " ".join(out.split())


def zsh(root: Command) -> str:
    commands = root.walk()
    name = root.path[0]
    lines = [f"#compdef {name}", BANNER.format(name=name), "",
             f"local command={shlex.quote(name)} word"]
    if len(commands) > 1:
        paths = "|".join(shlex.quote(_path(command)) for command in commands[1:])
        lines += ["for word in ${words[2,CURRENT-1]}; do", "  case \"$command $word\" in",
                  f"    {paths}) command=\"$command $word\" ;;", "  esac", "done"]
    lines += ["case \"$command\" in"]
    for command in commands:
        arguments = []
        for option in _offered(root, command):
            value = ""
            if option.value:
                label = option.value.replace(":", " ").replace("'", "")
                if option.choices:
                    value = f":{label}:({' '.join(option.choices)})"
                else:
                    value = f":{label}:" + ("_files" if option.takes_path else " ")
            repeat = "*" if option.repeated else ""
            for each in option.names:
                arguments.append(shlex.quote(f"{repeat}{each}[{_zsh_text(option.text)}]{value}"))
        if command.commands:
            below = " ".join(f'{sub.path[-1]}\\:"{_zsh_text(sub.about)}"' for sub in command.commands)
            arguments.append(shlex.quote(f"*: :(({below}))"))
        elif _takes_path(command):
            arguments.append(shlex.quote("*: :_files"))
        elif command.positionals:
            arguments.append(shlex.quote(f"*:{command.positionals[0].names[0]}: "))
        lines += [f"  {shlex.quote(_path(command))})", "    _arguments : \\"]
        lines += ["      " + argument + " \\" for argument in arguments]
        lines += ["      && return 0", "    ;;"]
    lines += ["esac", "return 1", ""]
    return "\n".join(lines)


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish(root: Command) -> str:
    commands = root.walk()
    name = root.path[0]
    at = f"_{_function(root)}_at"
    paths = " ".join(_fish_quote(_path(command)) for command in commands[1:])
    lines = [BANNER.format(name=name), "",
             f"function {at}", f"    set -l command {_fish_quote(name)}",
             f"    set -l known {paths}",
             "    for word in (commandline -opc)[2..-1]",
             "        if contains -- \"$command $word\" $known",
             "            set command \"$command $word\"",
             "        end", "    end", "    test \"$command\" = \"$argv\"", "end", "",
             f"complete -c {name} -f"]
    for command in commands:
        where = f"complete -c {name} -n {_fish_quote(at + ' ' + _path(command))}"
        for sub in command.commands:
            lines += [f"{where} -a {_fish_quote(sub.path[-1])} -d {_fish_quote(_short(sub.about))}"]
        if _takes_path(command):
            lines += [f"{where} -F"]
        for option in _offered(root, command):
            words = []
            for each in option.names:
                words += [f"-l {each[2:]}" if each.startswith("--") else f"-s {each[1:]}"]
            if option.choices:
                words += ["-x -a " + _fish_quote(" ".join(option.choices))]
            elif option.value:
                words += ["-r -F" if option.takes_path else "-x"]
            lines += [f"{where} {' '.join(words)} -d {_fish_quote(_short(option.text))}"]
    return "\n".join(lines + [""])
