#!/usr/bin/env python3
"""Write the order and the signatures of onnxruntime's C tables as Intarsia keeps them, from the headers of a release.

    python scripts/plugin_api_tables.py FOLDER_OF_HEADERS > src/intarsia/providers/plugin/interface/api_tables.txt

FOLDER_OF_HEADERS has onnxruntime_c_api.h and onnxruntime_ep_c_api.h. `MORE` are entries of later releases whose place and
signature are known from elsewhere. Only names, places, types and versions are read; see `api_tables.py` for the form.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

HEADERS = ("onnxruntime_c_api.h", "onnxruntime_ep_c_api.h")
TABLES = (
    "OrtApiBase", "OrtApi", "OrtEpApi", "OrtModelEditorApi", "OrtCompileApi", "OrtInteropApi", "OrtEpFactory", "OrtEp",
    "OrtNodeComputeInfo", "OrtKernelImpl", "OrtDataTransferImpl", "OrtSyncStreamImpl", "OrtSyncNotificationImpl",
    "OrtEpProfilerImpl", "OrtLoopKernelHelper", "OrtScanKernelHelper", "OrtExternalResourceImporterImpl", "OrtAllocator",
)  # fmt: skip
MORE = {"OrtApi": ["KernelContext_GetPreallocatedOutput S:pzp 30"]}  # seen in what the OpenVINO plugin 1.8.1 calls
SCALARS = {
    "void": "v", "bool": "b", "int": "i", "int32_t": "i", "uint32_t": "I", "int64_t": "l", "uint64_t": "L", "size_t": "z",
    "float": "f", "double": "d", "OrtStatusPtr": "S",
}  # fmt: skip
ENTRY = re.compile(
    r"(?:/\*(?P<comment>(?:(?!\*/).)*)\*/)|"
    r"ORT_API2_STATUS\(\s*(?P<status>\w+)\s*(?:,(?P<status_args>[^;]*))?\)(?:NO_EXCEPTION)?\s*(?:ORT_\w+)?;|"
    r"ORT_API_T\((?P<of>[^,]+),\s*(?P<typed>\w+)\s*(?:,(?P<typed_args>[^;]*))?\)\s*;|"
    r"ORT_CLASS_RELEASE2?\((?P<released>\w+)\)\s*;|"
    r"(?P<plain_of>[\w\s*]*?)\(\s*ORT_API_CALL\s*\*\s*(?P<plain>\w+)\)\s*\((?P<plain_args>[^;]*)\)\s*(?:NO_EXCEPTION)?\s*"
    r"(?:ORT_ALL_ARGS_NONNULL)?;|"
    r"(?P<field_type>uint32_t)\s+(?P<field>\w+);",
    re.DOTALL,
)


def body_of(text: str, table: str) -> str:
    """What is between the braces of a struct; comments have no braces."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", lambda found: re.sub("[{}]", " ", found[0]), text, flags=re.DOTALL)
    found = re.search(rf"struct {table} \{{", text)
    if found is None:
        raise SystemExit(f"no struct {table} in these headers")
    depth, end = 1, found.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text[found.end() : end - 1]


def split_arguments(text: str) -> Iterator[str]:
    """Arguments of a declaration, by commas outside of parentheses."""
    depth, begin = 0, 0
    for at, letter in enumerate(text + ","):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            if part := text[begin:at].strip():
                yield part
            begin = at + 1


def code_of(declared: str, enums: set[str], functions: set[str]) -> str:
    """The letter of a type."""
    plain = re.sub(r"\b_\w+_(?:\([^()]*\))?|\bconst\b|\bstruct\b|\benum\b", " ", declared)
    if "(" in plain or plain.count("*") > 1 or "[" in plain:
        return "p"
    kind = plain.replace("*", " ").split()
    name = kind[0] if kind else "void"
    if re.search(r"\benum\b", declared):
        return "p" if "*" in plain else "i"
    if "*" in plain:
        constant = re.search(r"\bconst\b", declared) is not None
        return {"char": "s", "ORTCHAR_T": "w"}.get(name, "p") if constant else "p"
    if name in SCALARS:
        return SCALARS[name]
    if name in enums:
        return "i"
    if name in functions:
        return "p"
    raise SystemExit(f"what is {declared!r}?")


def entries(body: str, enums: set[str], functions: set[str]) -> Iterator[str]:
    """The lines of a table."""
    since = "1"
    for found in ENTRY.finditer(re.sub(r"//[^\n]*|^#.*$", "", body, flags=re.MULTILINE)):
        part = found.groupdict()
        if part["comment"] is not None:
            if stated := re.findall(r"\\since (?:Version )?1\.(\d+)", part["comment"]):
                since = stated[-1]
            continue
        name = part["status"] or part["typed"] or part["plain"] or part["field"]
        arguments = part["status_args"] or part["typed_args"] or part["plain_args"] or ""
        result = part["of"] or part["plain_of"] or ""
        if part["released"]:
            name, code, given = f"Release{part['released']}", "v", "p"
        elif part["field"]:
            code, given = "I", "-"
        else:
            code = "S" if part["status"] or "OrtStatus" in result else code_of(result, enums, functions)
            given = "".join(code_of(a, enums, functions) for a in split_arguments(arguments)).replace("v", "")
        yield f"{name} {code}:{given} {since}"


def main() -> None:
    folder = Path(sys.argv[1])
    text = "\n".join((folder / name).read_text() for name in HEADERS)
    enums = set(re.findall(r"typedef enum (\w+)", text)) | {"OrtErrorCode"}
    functions = set(re.findall(r"typedef\s[^;{]*?\(\s*(?:ORT_API_CALL)?\s*\*\s*(\w+)\)", text)) | {"OrtCustomThreadHandle"}
    functions |= set(re.findall(r"typedef const struct \w+\* (\w+);", text))
    (version,) = re.findall(r"#define ORT_API_VERSION (\d+)", text)
    print(f"# onnxruntime's C tables to version {version}; scripts/plugin_api_tables.py writes this, api_tables.py reads it")
    for table in TABLES:
        print(f"\n[{table}]")
        print("\n".join([*entries(body_of(text, table), enums, functions), *MORE.get(table, ())]))


if __name__ == "__main__":
    main()
