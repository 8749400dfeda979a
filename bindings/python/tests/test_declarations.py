"""What the package declares is what the headers declare, so that neither can change alone."""

import os
import pathlib
import re

import pytest

import syncd
from syncd._cdef import CDEF, CDEF_SERVER, CDEF_UPDATE_QUEUE

SOURCE = pathlib.Path(__file__).parents[3] / "capi/include/syncd/client.h"
HEADER = pathlib.Path(os.environ.get("SYNCD_HEADER", SOURCE))
SERVER_HEADER = HEADER.with_name("server.h")

pytestmark = pytest.mark.skipif(
    not HEADER.exists(), reason=f"no {HEADER}; SYNCD_HEADER names the installed header"
)


def declarations(text):
    """Every declaration as (what it declares) -> (its text in one spacing)."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"\\\n", " ", text)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    text = text.replace('extern "C" {', "").replace("SYNCD_API", "")
    text = re.sub(r"\s*([(){};,*=])\s*", r" \1 ", text)
    text = re.sub(r"\s+", " ", text)
    found = {}
    for match in re.finditer(r"enum \{(.*?)\} ;", text):
        for item in match.group(1).split(","):
            if item.strip():
                name, value = item.split("=")
                found[name.strip()] = value.strip()
    text = re.sub(r"enum \{.*?\} ;", "", text)
    for match in re.finditer(r"typedef struct (\w+) \{(.*?)\} (\w+) ;", text):
        fields = [field.strip() for field in match.group(2).split(";") if field.strip()]
        found[f"struct {match.group(1)}"] = fields
    text = re.sub(r"typedef struct \w+ \{.*?\} \w+ ;", "", text)
    for part in text.split(";"):
        part = part.strip()
        if part.strip("} "):
            name = re.search(r"(\w+) \(", part) or re.search(r"(\w+)$", part)
            found[name.group(1)] = part
    return found


def constants(text):
    found = re.findall(r"#define (SYNCD_\w+) +(?:\(\(int64_t\)|\()?(-\d+)", text)
    return {name: int(value) for name, value in found}


def test_the_header_is_understood():
    found = declarations(HEADER.read_text())
    assert found["syncd_leave"].startswith("syncd_status syncd_leave ( syncd_worker *")
    assert found["SYNCD_E_TIMEOUT"] == "-3"
    assert found["struct syncd_update"][-1] == "double weight"
    assert sum(name.startswith("syncd_") for name in found) >= 25


def test_declarations_agree():
    header, bound = declarations(HEADER.read_text()), declarations(CDEF)
    assert bound == header, "change src/syncd/_cdef.py as the header was changed"


def test_declarations_of_the_update_queue_agree():
    header = declarations(HEADER.with_name("update_queue.h").read_text())
    assert sum(name.startswith("syncd_") for name in header) >= 13
    assert declarations(CDEF_UPDATE_QUEUE) == header, "change src/syncd/_cdef.py likewise"


def test_declarations_of_the_server_agree():
    if not SERVER_HEADER.exists():
        pytest.skip(f"no {SERVER_HEADER}")
    header = declarations(SERVER_HEADER.read_text())
    assert header["SYNCD_SERVER_LOG_STDERR"] == "1"
    assert declarations(CDEF_SERVER) == header


def test_constants_agree():
    assert constants(CDEF) == constants(HEADER.read_text())
    assert len(constants(CDEF)) == 5


def test_statuses_agree():
    header = declarations(HEADER.read_text())
    numbers = {
        name: int(value) for name, value in header.items() if re.match("SYNCD_(OK|E_)", name)
    }
    assert {"SYNCD_" + status.name: status.value for status in syncd.Status} == numbers


def test_a_change_of_the_header_would_be_seen():
    header = HEADER.read_text()
    for old, new in [
        ("uint64_t bytes;", "uint32_t bytes;"),
        ("int32_t rank;", "int32_t rank; int32_t more;"),
        ("const syncd_push_info *info", "syncd_push_info *info"),
        ("SYNCD_E_STORE = -13", "SYNCD_E_STORE = -26"),
        ("SYNCD_API void syncd_worker_free(", "SYNCD_API void syncd_worker_end("),
    ]:
        assert old in header
        assert declarations(CDEF) != declarations(header.replace(old, new))
