"""What makes a release: its parts, the folder that `make release` leaves, and installations from it as a user makes."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plait
import pytest

ROOT = Path(__file__).resolve().parent.parent
EPOCH = "1700000000"
GO = shutil.which("go") or ""
needs_go = pytest.mark.skipif(not GO, reason="needs Go")


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Runs a command outside the development environment and returns what it printed."""
    full = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS")} | env
    done = subprocess.run([str(c) for c in command], check=False, cwd=cwd, env=full, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def script(name: str) -> dict[str, Any]:
    """Returns the names of a script of internal/release."""
    return runpy.run_path(str(ROOT / f"internal/release/{name}.py"))


def linked() -> list[dict[str, str]]:
    return json.loads((ROOT / "licences/linked.json").read_text("utf-8"))


def test_notes_are_the_versions_section() -> None:
    section: Callable[[str, str], str] = script("notes")["section"]
    text = "# Changelog\n\n## [Unreleased]\n\nnext\n\n## [1.2.0] - 2026-01-02\n\n### Added\n\n- this\n\n## [1.1]\n"
    assert section(text, "1.2.0") == "### Added\n\n- this\n"
    assert section(text, "1.3.0") == "next\n"
    with pytest.raises(SystemExit, match=r"neither a section 1\.0 nor Unreleased"):
        section("## [0.9]\n", "1.0")


def test_archives_depend_on_their_files_alone() -> None:
    normalise: Callable[[bytes, int], bytes] = script("archive")["normalise"]

    def archive(names: list[str], mtime: int, owner: str) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as f:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.uname = len(name), mtime, owner
                member.mode = 0o775 if name == "b" else 0o664
                f.addfile(member, io.BytesIO(name.encode()))
        return out.getvalue()

    one, other = archive(["b", "a"], 1, "one"), archive(["a", "b"], 2, "other")
    assert one != other
    same = normalise(one, 5)
    assert same == normalise(other, 5)
    with tarfile.open(fileobj=io.BytesIO(same)) as f:
        assert [(m.name, m.mode, m.mtime, m.uname) for m in f] == [("a", 0o644, 5, ""), ("b", 0o755, 5, "")]
        member = f.extractfile("b")
        assert member
        assert member.read() == b"b"


def test_licences_of_all_that_is_linked_in_are_there() -> None:
    texts = {p.name: p.read_text("utf-8") for p in (ROOT / "licences").glob("*.txt")}
    assert {row["text"] for row in linked()} == set(texts)
    for row in linked():
        if row["text"] == "wgpu-native.txt":
            assert f"\n{row['name']} {row['version']}: {row['licence']}\n" in texts[row["text"]]


@needs_go
@pytest.mark.skipif(not shutil.which("ar"), reason="needs ar")
def test_every_part_of_the_gpu_library_is_listed() -> None:
    """The static library's objects are named after the Rust packages that they are of."""
    module = run(GO, "list", "-m", "-f", "{{.Dir}}", "github.com/cogentcore/webgpu", cwd=ROOT).strip()
    objects = run("ar", "t", Path(module) / "wgpu/lib/linux/amd64/libwgpu_native.a", cwd=ROOT).split()
    # Those of the standard library itself; compiler_builtins has objects of C besides, named by a hash alone.
    standard = {"alloc", "core", "panic_unwind", "std", "std_detect", "unwind"}
    standard |= {"rustc_std_workspace_alloc", "rustc_std_workspace_core"}
    packages = {m[1] for o in objects if (m := re.match(r"([a-z]\w*)-[0-9a-f]{16}\.\1\.", o))} - standard
    rows = {row["name"].replace("-", "_") for row in linked() if row["text"] == "wgpu-native.txt"}
    assert packages
    assert packages == rows - {"rust_std", "wgpu_native"}  # whose own objects have another form of name


@needs_go
def test_contents_name_every_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOFLAGS", "-trimpath -buildvcs=false -buildmode=pie")
    sbom = script("sbom")
    document = sbom["document"](plait.__version__, int(EPOCH))
    assert document == sbom["document"](plait.__version__, int(EPOCH))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    components = {c["name"]: c for c in document["components"]}
    webgpu = re.search(r"cogentcore/webgpu (\S+)", (ROOT / "go.mod").read_text("utf-8"))
    assert webgpu
    assert components["github.com/cogentcore/webgpu"]["version"] == webgpu[1]
    assert {"go", "libgcc", "wgpu-native", "numpy", "scipy-openblas32"} <= components.keys()
    references = [c["bom-ref"] for c in document["components"]]
    assert len(references) == len(set(references))
    assert all(c["version"] and c["licenses"][0]["expression"] for c in document["components"])
    with pytest.raises(SystemExit, match=r"does not name example\.com/new, which is linked in"):
        sbom["linked"]({"example.com/new": "v1.0.0"}, linked())
    with pytest.raises(SystemExit, match="names go, which is not linked in"):
        sbom["linked"]({}, linked())
