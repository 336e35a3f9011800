"""What makes a release: its parts, the folder that `make release` leaves, and installations from it as a user makes."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import plait
import pytest

ROOT = Path(__file__).resolve().parent.parent
EPOCH = "1700000000"
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
GO = shutil.which("go") or ""
TRAIN = """
import plait
from plait import nn, optim

plait.manual_seed(1)
x, y = plait.randn(64, 4), plait.randn(64, 1)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = optim.SGD(model.parameters(), lr=0.05)
losses = []
for _ in range(3):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[2] < losses[1] < losses[0], losses
print(plait.__version__, plait.__file__)
"""
needs_go = pytest.mark.skipif(not GO, reason="needs Go")


def attempt(*command: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a command outside the development environment."""
    full = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")} | env
    return subprocess.run([str(c) for c in command], check=False, cwd=cwd, env=full, capture_output=True, text=True)


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Runs a command outside the development environment, which has to succeed, and returns what it printed."""
    done = attempt(*command, cwd=cwd, **env)
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


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_only_a_commit_with_tag_and_date_is_published(tmp_path: Path) -> None:
    version = plait.__version__
    for name in ("internal/make/release", "python/plait/_version.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    git = partial(run, "git", "-c", "user.name=x", "-c", "user.email=x@example.com", cwd=tmp_path)
    check = partial(attempt, tmp_path / "internal/make/release", "--check", cwd=tmp_path)
    git("init", "--quiet")
    changelog.write_text("## [Unreleased]\n")
    assert check().stderr.splitlines() == [
        "release: files are changed and not committed",
        f"release: the last commit has no tag v{version}",
        f'release: CHANGELOG.md has no line "## [{version}] - YYYY-MM-DD"',
    ]
    changelog.write_text(f"## [{version}] - 2026-01-02\n")
    git("add", ".")
    git("commit", "--quiet", "--message", "a release")
    assert check().stderr == f"release: the last commit has no tag v{version}\n"
    git("tag", f"v{version}")
    done = check()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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
    inside = sbom["document"](plait.__version__, None, packages=False)
    assert inside["components"] == [c for c in document["components"] if c["name"] not in sbom["REQUIRED"]]
    assert "timestamp" not in inside["metadata"]
    with pytest.raises(SystemExit, match=r"does not name example\.com/new, which is linked in"):
        sbom["linked"]({"example.com/new": "v1.0.0"}, linked())
    with pytest.raises(SystemExit, match="names go, which is not linked in"):
        sbom["linked"]({}, linked())


def test_clang_names_the_gcc_whose_libgcc_it_links(tmp_path: Path) -> None:
    clang = tmp_path / "clang"
    clang.write_text(
        f"#!{shutil.which('sh')}\n[ $1 != -dumpfullversion ] && echo /usr/lib/gcc/x86_64-linux-gnu/12/libgcc.a\n"
    )
    clang.chmod(0o755)
    assert script("sbom")["libgcc"](str(clang)) == "12"


def test_a_package_that_is_not_built_says_so(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "python/plait", tmp_path / "plait", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    done = attempt(sys.executable, "-c", "import plait", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.stderr.splitlines()[-1] == (
        "ImportError: plait: the compiled module is not in the package's folder; "
        "`make extension` builds it, and the wheel has it"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="a home in which nothing can be written, also by root")
def test_a_home_is_not_needed(tmp_path: Path) -> None:
    done = attempt(sys.executable, "-W", "error", "-c", TRAIN, cwd=tmp_path, HOME="/dev/null/home", XDG_CACHE_HOME="")
    assert (done.returncode, done.stderr) == (0, "")


def interpreter(version: str) -> str:
    """Returns the path of a Python of that version; skips the test where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [sys.executable, f"python{version}", *pyenv.glob(f"versions/{version}.*/bin/python")]
    for path in map(str, found):
        ask = [path, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        try:
            done = subprocess.run(ask, check=False, capture_output=True, text=True)
        except FileNotFoundError:
            continue
        if done.returncode == 0 and done.stdout.strip() == version:
            return path
    pytest.skip(f"Python {version} with venv is not on this machine")


def empty(folder: Path, version: str) -> Path:
    """Makes an empty environment, and returns its Python."""
    run(interpreter(version), "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin/python"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves a folder on this machine alone, and gives its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def index(folder: Path, packages: list[Path]) -> None:
    """Writes a simple index, as PyPI's is, of wheels and source distributions."""
    names: dict[str, list[Path]] = {}
    for package in packages:
        names.setdefault(package.name.split("-")[0].replace("_", "-"), []).append(package)
    for name, files in names.items():
        (folder / name).mkdir(parents=True)
        links = []
        for file in files:
            shutil.copy(file, folder / name)
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            needs = ' data-requires-python="&gt;=3.11"' if name == "plait" else ""
            links.append(f'<a href="{file.name}#sha256={digest}"{needs}>{file.name}</a>')
        (folder / name / "index.html").write_text(f"<!DOCTYPE html><html><body>{' '.join(links)}</body></html>")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make release` leaves."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    run(ROOT / "internal/make/release", folder, cwd=ROOT, SOURCE_DATE_EPOCH=EPOCH)
    return folder


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def contents(wheel: Path) -> dict[str, Any]:
    """Returns what the wheel says is linked in."""
    with zipfile.ZipFile(wheel) as f:
        return json.loads(f.read(f"plait-{plait.__version__}.dist-info/sboms/plait.cdx.json"))


def module(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as f:
        (name,) = [n for n in f.namelist() if n.endswith(".so")]
        return f.read(name)


@pytest.mark.slow
def test_release_leaves_all_that_is_needed(dist: Path) -> None:
    version = plait.__version__
    wheel, source, library = only(dist, "*.whl"), dist / f"plait-{version}.tar.gz", only(dist, "libplait-*.tar.gz")
    others = {f"plait-{version}.cdx.json", "RELEASE_NOTES.md", "SHA256SUMS"}
    assert {p.name for p in dist.iterdir()} == {wheel.name, source.name, library.name, *others}
    sums = {}
    for line in (dist / "SHA256SUMS").read_text("utf-8").splitlines():
        digest, name = line.split("  ")
        sums[name] = digest
    assert sums == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in dist.iterdir() if p.name in sums}
    assert sums.keys() == {p.name for p in dist.iterdir()} - {"SHA256SUMS"}
    assert (dist / "RELEASE_NOTES.md").read_text("utf-8").startswith(f"# Plait {version}\n\n")

    libc = re.fullmatch(rf"plait-{re.escape(version)}-cp311-abi3-manylinux_2_(\d+)_(\w+)\.whl", wheel.name)
    assert libc, wheel.name
    assert max(int(v) for v in re.findall(rb"GLIBC_2\.(\d+)", module(wheel))) == int(libc[1])
    assert libc[2] != "x86_64" or int(libc[1]) == 28
    assert wheel.stat().st_size < 30 << 20
    licences = {"LICENSE", *(f"licences/{p.name}" for p in (ROOT / "licences").glob("*.txt"))}
    with zipfile.ZipFile(wheel) as f:
        names = set(f.namelist())
    inside = f"plait-{version}.dist-info/licenses/"
    assert {n.removeprefix(inside) for n in names if n.startswith(inside)} == licences
    ours = [p.relative_to(ROOT / "python") for p in (ROOT / "python/plait").rglob("*.py*") if p.suffix != ".pyc"]
    assert {p.as_posix() for p in ours} | {"plait/py.typed"} <= names
    with zipfile.ZipFile(wheel) as f:
        record = f"plait-{version}.dist-info/RECORD"
        rows = [line.rsplit(",", 2) for line in f.read(record).decode().splitlines()]
        digests = {n: base64.urlsafe_b64encode(hashlib.sha256(f.read(n)).digest()).rstrip(b"=").decode() for n in names}
        sizes = {n: str(f.getinfo(n).file_size) for n in names}
    assert {name: (digest, size) for name, digest, size in rows} == {
        n: ("", "") if n == record else (f"sha256={digests[n]}", sizes[n]) for n in names
    }
    whole = json.loads((dist / f"plait-{version}.cdx.json").read_text("utf-8"))
    linked_in = [c for c in whole["components"] if {"name": "plait:linked", "value": "statically"} in c["properties"]]
    assert contents(wheel)["components"] == linked_in
    assert contents(wheel)["metadata"] == whole["metadata"]

    assert source.stat().st_size < 10 << 20
    with tarfile.open(source) as f:
        names = {n.partition("/")[2] for n in f.getnames()}
    assert licences <= names
    assert not [
        n for n in names if n.endswith((".so", "_test.go", ".pyc")) or n.startswith((".venv", "build", "tests"))
    ]

    with tarfile.open(library) as f:
        names = {m.name.partition("/")[2] for m in f if m.isfile()}
    assert names == {"libplait.so", "plait.h", *licences}


@pytest.mark.slow
def test_releases_have_the_same_bytes_each_time(dist: Path, tmp_path: Path) -> None:
    """A second release does; and the source distribution makes the same module in another folder."""
    run(ROOT / "internal/make/release", tmp_path / "dist", cwd=ROOT, SOURCE_DATE_EPOCH=EPOCH)
    assert (tmp_path / "dist/SHA256SUMS").read_bytes() == (dist / "SHA256SUMS").read_bytes()
    python = empty(tmp_path / "venv", HERE)
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, dist / f"plait-{plait.__version__}.tar.gz", cwd=tmp_path)
    assert only(tmp_path, "*.whl").name == only(dist, "*.whl").name
    assert module(only(tmp_path, "*.whl")) == module(only(dist, "*.whl"))
    assert contents(only(tmp_path, "*.whl"))["components"] == contents(only(dist, "*.whl"))["components"]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_pip_installs_from_an_index(version: str, dist: Path, tmp_path: Path) -> None:
    """Into an empty environment, in which a program then trains."""
    python = empty(tmp_path / "venv", version)
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    needs = ["numpy", "scipy-openblas32"]
    run(*pip, "download", "--only-binary", ":all:", "--dest", tmp_path / "needs", *needs, cwd=tmp_path)
    index(tmp_path / "index", [*dist.glob("plait-*.whl"), *dist.glob("plait-*.gz"), *(tmp_path / "needs").iterdir()])
    with served(tmp_path / "index") as address:
        run(*pip, "--isolated", "install", "--no-cache-dir", "--index-url", address, "plait", cwd=tmp_path)
    trained, _, file = run(python, "-c", TRAIN, cwd=tmp_path).strip().partition(" ")
    assert trained == plait.__version__
    assert Path(file).is_relative_to(tmp_path)


@pytest.mark.slow
def test_python_3_10_is_told_what_is_wanted(dist: Path, tmp_path: Path) -> None:
    python = empty(tmp_path / "venv", "3.10")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--isolated", "install"]
    index(tmp_path / "index", [*dist.glob("plait-*.whl"), *dist.glob("plait-*.gz")])
    with served(tmp_path / "index") as address:
        done = attempt(*pip, "--index-url", address, "plait", cwd=tmp_path)
    assert done.returncode != 0
    assert "require a different python version" in done.stderr
    assert ">=3.11" in done.stderr
    assert "Traceback" not in done.stderr
    done = attempt(python, "-c", "import plait", cwd=tmp_path, PYTHONPATH=str(ROOT / "python"))
    assert done.stderr.splitlines()[-1] == "ImportError: plait: want Python 3.11 or newer, got 3.10"


@pytest.mark.slow
def test_a_build_without_tools_says_what_is_missing(dist: Path, tmp_path: Path) -> None:
    """pip shows the line as the last of the build's output."""
    python = empty(tmp_path / "venv", HERE)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps"]
    source = dist / f"plait-{plait.__version__}.tar.gz"
    done = attempt(*pip, source, cwd=tmp_path, PATH=str(tmp_path / "venv/bin"))
    assert done.returncode != 0
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    says = lines[lines.index("[end of output]") - 1]
    assert says == (
        "plait: a build from source needs Go, a C compiler (gcc), not found here; "
        "the wheel, which pip 20.3 and newer choose, needs none"
    )
    assert not [line for line in lines if line.startswith("copying")]


PROGRAM = """package main

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
)

func main() {
	layer := nn.NewLinear(2, 1, nn.LinearOptions{})
	sgd, err := optim.NewSGD(layer.Parameters(), optim.Hyper{LR: 0.1})
	fmt.Println(op.Sum(core.FromSlice([]float32{1, 2}, 2), nil, false).Item())
	fmt.Println(sgd, err)
}
"""


def proxy(folder: Path, version: str) -> None:
    """Writes what a module proxy serves of this module, as it would from a tag."""
    name = "github.com/plait-ml/plait"
    there = folder / name / "@v"
    there.mkdir(parents=True)
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    nested = {str(Path(f).parent) + "/" for f in listed if f.endswith("/go.mod")}
    with zipfile.ZipFile(there / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as f:
        for file in sorted(filter(None, listed)):
            if (ROOT / file).is_file() and not file.startswith(tuple(nested)):
                f.write(ROOT / file, f"{name}@{version}/{file}")
    shutil.copy(ROOT / "go.mod", there / f"{version}.mod")
    (there / f"{version}.info").write_text(json.dumps({"Version": version, "Time": "2026-01-02T03:04:05Z"}))
    (there / "list").write_text(f"{version}\n")


@pytest.mark.slow
@needs_go
def test_go_get_as_a_program_does(tmp_path: Path) -> None:
    """From a proxy, into empty modules with empty caches of modules; core alone downloads nothing for GPUs.

    The kernels of a module that was downloaded are compiled anew, for minutes, so one package without any is.
    """
    version = f"v{plait.__version__}"
    proxy(tmp_path / "proxy", version)
    others = run(GO, "env", "GOMODCACHE", cwd=ROOT).strip()
    for package, program, downloads in (
        ("core", PROGRAM, False),
        ("gpu", 'package main\n\nimport _ "github.com/plait-ml/plait/gpu"\n\nfunc main() {}\n', True),
    ):
        consumer = tmp_path / package
        consumer.mkdir()
        (consumer / "main.go").write_text(program)
        with served(tmp_path / "proxy") as address:
            go = partial(
                run,
                GO,
                cwd=consumer,
                GOFLAGS="-modcacherw",
                GOMODCACHE=str(consumer / "modules"),
                GOPROXY=f"{address},file://{others}/cache/download,off",
                GONOSUMDB="*",
                GOSUMDB="off",
                GOTOOLCHAIN="local",
            )
            go("mod", "init", "example.com/consumer")
            go("get", f"github.com/plait-ml/plait/{package}@latest")
            go("get", ".")
            listed = set(go("list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", ".").split("\n"))
            go("build", "github.com/plait-ml/plait/core")
        assert f"github.com/plait-ml/plait {version}" in listed
        assert any("cogentcore/webgpu" in line for line in listed) == downloads
        archives = [p for p in (consumer / "modules/cache/download").rglob("*.zip") if "cogentcore" in str(p)]
        assert bool(archives) == downloads
