"""Builds the compiled module `plait._core`: Go behind Python.

gopy generates Python bindings for the package capi/bind into a folder of their own under build/, pybindgen writes the C
of the extension module, and one link makes the module with the C functions of package capi inside.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
MODULE = "github.com/plait-ml/plait"
GOPY = "github.com/go-python/gopy"
# The oldest Python. The extension module keeps to the stable interface of that one, and so serves every later one.
OLDEST = (3, 11)
LIMITED = f"0x{OLDEST[0]:02x}{OLDEST[1]:02x}0000"
# One set of flags everywhere keeps one build cache; those of the Makefile.
GOFLAGS = "-trimpath -buildvcs=false -buildmode=pie"


class Build(build):
    """Checks the machine before anything is copied."""

    def run(self) -> None:
        """Runs the parts of the build."""
        check()
        super().run()


class BuildGo(build_ext):
    """Builds extension modules whose source is Go."""

    def build_extension(self, ext: Extension) -> None:
        """Generates, compiles and links `ext` into the place that setuptools gives it."""
        check()
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        # Patterns such as ./... leave out folders whose names begin with an underscore.
        work = ROOT / "build" / f"_extension-{sys.implementation.cache_tag}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        name = ext.name.rpartition(".")[2]
        compile_engine()
        say("generating the bindings")
        generate(work, name.lstrip("_"))
        say("compiling the bindings and linking")
        link(work, target)


def say(line: str) -> None:
    """Prints a stage of the build, which `pip install -v` and `make extension` show."""
    print(f"plait: {line}", flush=True)


def check() -> None:
    """Ends the build with one line that says what the machine lacks for it."""
    missing = []
    compiler = os.environ.get("CC") or "gcc"
    if shutil.which("go"):  # which may have been told of another compiler by `go env -w`
        compiler = run("go", "env", "CC", cwd=ROOT).strip() or compiler
    else:
        missing.append("Go")
    compiler = shlex.split(compiler)[0]
    if not shutil.which(compiler):
        missing.append(f"a C compiler ({compiler})")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        missing.append(f"Python's headers ({header})")
    if missing:
        raise SystemExit(
            f"plait: a build from source needs {', '.join(missing)}, not found here; "
            "the wheel, which pip 20.3 and newer choose, needs none"
        )


def environment(**env: str) -> dict[str, str]:
    """Returns the environment of a command with the project's Go flags, and with `env`."""
    full = {**os.environ, "GOFLAGS": GOFLAGS, "CGO_ENABLED": "1", **env}
    full.pop("CGO_CFLAGS", None)
    return full


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Runs a command with the project's Go flags and returns what it printed."""
    words, full = [str(c) for c in command], environment(**env)
    try:
        done = subprocess.run(words, cwd=cwd, env=full, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"plait: {shlex.join(words)} failed:\n{error.stdout}\n{error.stderr}") from None
    return done.stdout


def compile_engine() -> None:
    """Compiles what will be linked, ahead of gopy: that compiles all C to look at its types, and keeps no objects."""
    packages = [f"{MODULE}/capi", f"{MODULE}/capi/bind"]
    pattern = "{{if and .Stale .CFiles}}{{.ImportPath}}{{end}}"
    stale = set(run("go", "list", "-deps", "-f", pattern, *packages, cwd=ROOT).split())
    if not stale:
        return
    say(f"packages of C to compile: {len(stale)}")
    # With -v, the go command names each package as it begins with it.
    command = ["go", "build", "-v", *packages]
    printed, begun = [], 0
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if (package := line.strip()) in stale:
                begun += 1
                say(f"{begun} of {len(stale)}: {package.removeprefix(MODULE + '/')}")
            else:
                printed.append(line)
    if process.returncode:
        raise SystemExit(f"plait: {shlex.join(command)} failed:\n{''.join(printed)}")


def generate(work: Path, name: str) -> None:
    """Writes the Go and C sources of the extension module into the folder `name` of `work`."""
    gopy = ROOT / "build" / "bin" / "gopy"
    run("go", "build", "-o", gopy, GOPY, cwd=ROOT / "internal/tools")
    # gopy compiles the package before it looks at its types, in another mode than the link: minutes for nothing.
    tools = work / "bin"
    tools.mkdir()
    go = shutil.which("go")
    (tools / "go").write_text(f'#!/bin/sh\n[ "$1" = build ] && exit 0\nexec {shlex.quote(str(go))} "$@"\n')
    (tools / "go").chmod(0o755)
    out = work / "generated"
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    command: list[str | Path] = [
        gopy,
        "gen",
        f"-vm={sys.executable}",
        f"-output={out}",
        f"-name={name}",
        "-no-warn",
        f"{MODULE}/capi/bind",
    ]
    run(*command, cwd=ROOT, PATH=path, GODEBUG="gotypesalias=0")  # gopy does not know aliases
    stubs = out / "build.py"
    stubs.write_text(flat(stubs.read_text()))
    run(sys.executable, stubs.name, cwd=out)
    package = work / name
    package.mkdir()
    (package / f"{name}.c").write_text(quicken(complete((out / f"{name}.c").read_text())))
    for source in (ROOT / "capi/extension").glob("*.[ch]"):
        shutil.copy(source, package)
    (package / f"{name}_go.h").write_text('#include "_cgo_export.h"\n')
    (package / f"{name}.go").write_text(adapt((out / f"{name}.go").read_text(), name))
    shutil.rmtree(out)
    shutil.rmtree(tools)
    # The go command compiles all C anew, each time, where the main package itself uses cgo.
    folder = package.relative_to(ROOT).as_posix()
    (work / "main.go").write_text(f'package main\n\nimport _ "{MODULE}/{folder}"\n\nfunc main() {{}}\n')


def flat(stubs: str) -> str:
    """Leaves the functions of capi/bind alone: gopy's own, of handles and slices, check nothing and end the process."""
    stubs = re.sub(r"^(add_checked_function|mod\.add_function)\((mod, )?'(?!bind_).*\n", "", stubs, flags=re.M)
    return in_order(stubs, r"^[\w.]+\((?:mod, )?'bind_[^\n]*\n")


def in_order(source: str, pattern: str) -> str:
    """Sorts what matches the pattern: gopy writes functions in a new order each time, and builds are to be the same."""
    parts = iter(sorted(re.findall(pattern, source, re.M | re.S)))
    return re.sub(pattern, lambda _: next(parts), source, flags=re.M | re.S)


def adapt(source: str, name: str) -> str:
    """Fits gopy's Go source to an importable package of flat functions; those that cannot wait keep the GIL."""
    for start, end in (
        ("// initialization functions", "// boolGoToPy"), ("// ---- Package: go ---", "// ---- Package: bind ---"),
    ):  # fmt: skip
        assert source.count(start) == source.count(end) == 1, f"gopy writes something else for {start}"
        source = source[: source.index(start)] + source[source.index(end) :]
    source = re.sub(r'^\s*"github.com/go-python/gopy/gopyh".*\n', "", source, flags=re.M)
    source = re.sub(r"^gopy gen .*\n", "", source, count=1, flags=re.M)  # the command with this machine's folders
    source = in_order(source, r"^//export bind_\w+\nfunc .*?^}\n")
    source = source.replace("package main\n", f"package {name}\n", 1).replace("func main()", "func _()")
    source = re.sub(r"^#cgo LDFLAGS:.*$", "", source, flags=re.M)
    include = sysconfig.get_path("include")
    source = re.sub(
        r"^#cgo CFLAGS:.*$", f'#cgo CFLAGS: "-I{include}" -DPy_LIMITED_API={LIMITED} -O2 -w', source, flags=re.M
    )
    # What the stable interface has not, and nothing uses.
    source = re.sub(r"^static inline int gopy_method_check\(.*?^}\n", "", source, flags=re.M | re.S)
    source = re.sub(r"^func complex(64|128)(GoToPy|PyToGo)\(.*?^}\n", "", source, flags=re.M | re.S)
    # What goimports would add, and the C functions.
    used = [p for p in ("errors", "fmt", "unsafe") if re.search(rf"\b{p}\.", source)]
    imports = "".join(f'\t"{p}"\n' for p in used) + f'\t_ "{MODULE}/capi"\n'
    source = source.replace('import "C"\nimport (\n', f'import "C"\nimport (\n{imports}', 1)
    waiting = set()
    for path in (ROOT / "capi/bind").glob("*.go"):
        waiting.update(re.findall(r"^//plait:waits\nfunc (\w+)", path.read_text(), re.M))
    release = "\t_saved_thread := C.PyEval_SaveThread()\n\tdefer C.PyEval_RestoreThread(_saved_thread)\n"

    def keep(match: re.Match[str]) -> str:
        return match[0] if match[1] in waiting else match[0].replace(release, "")

    return re.sub(r"^func bind_(\w+)\(.*?^}", keep, source, flags=re.M | re.S)


def complete(source: str) -> str:
    """Makes the module also have what capi/extension adds to it."""
    source = source.replace("typedef PyAsyncMethods* cmpfunc;\n", "typedef void* cmpfunc;\n")  # used by nothing
    end = "    return MOD_RETURN(m);\n"
    added = f"    if (add_owners(m) < 0) {{\n        Py_DECREF(m);\n        return MOD_ERROR;\n    }}\n{end}"
    assert source.count(end) == 1, "pybindgen writes another end of the module's function"
    return "extern int add_owners(void *);\n" + source.replace(end, added)


def quicken(source: str) -> str:
    """Converts the arguments of functions of numbers and bools directly, where pybindgen parses them by a format: that
    costs more than most calls.
    """
    convert = {"L": "PyLong_AsLongLong({})", "d": "PyFloat_AsDouble({})", "O": "{}"}
    quick = set()
    source = source.replace('Py_BuildValue((char *) "L", retval)', "PyLong_FromLongLong(retval)")

    def direct(match: re.Match[str]) -> str:
        name, body = match.groups()
        parse = re.search(r'    if \(!PyArg_ParseTupleAndKeywords\(.*?"([LdO]+)".*? keywords, (.*?)\)\) {\n', body)
        if parse is None:
            return match[0]
        quick.add(name)
        kinds, targets = parse[1], parse[2].replace("&", "").split(", ")
        lines = [
            f"    if (nargs != {len(kinds)}) {{",
            f'        PyErr_Format(PyExc_TypeError, "want {len(kinds)} arguments, got %zd", nargs);',
        ]
        lines += ["        return NULL;", "    }"]
        for i, (kind, target) in enumerate(zip(kinds, targets, strict=True)):
            lines.append(f"    {target} = {convert[kind].format(f'args[{i}]')};")
            if kind != "O":  # a later conversion may call Python, which must not find an error
                lines.append(f"    if ({target} == -1 && PyErr_Occurred()) return NULL;")
        lines += ["    if (PyErr_Occurred()) {", ""]
        body = body.replace(parse[0], "\n".join(lines))
        body = re.sub(r"    const char \*keywords.*\n", "", body)
        return f"{name}(PyObject *dummy, PyObject *const *args, Py_ssize_t nargs)\n{{{body}\n}}\n"

    args = r"\(PyObject \* PYBINDGEN_UNUSED\(dummy\), PyObject \*args, PyObject \*kwargs\)"
    source = re.sub(
        rf"^(_wrap_\w+){args}\n{{(.*?)\n}}\n(?:PyObject \* _wrap_[^\n]*;\n)?", direct, source, flags=re.M | re.S
    )
    return re.sub(
        r"\(PyCFunction\) (_wrap_\w+), METH_KEYWORDS\|METH_VARARGS",
        lambda m: f"(PyCFunction)(void (*)(void)) {m[1]}, METH_FASTCALL" if m[1] in quick else m[0],
        source,
    )


def link(work: Path, target: Path) -> None:
    """Links the extension module, which exports its init function and the C functions alone."""
    flags = "-s -w -buildid="  # identifiers are hashes of this machine's folders too
    if sys.platform == "linux":
        flags += " -B none"
    if sys.platform != "win32":
        flags += f" -extldflags '{run(ROOT / 'capi/ldflags', cwd=ROOT).strip()}'"
    package = "./" + work.relative_to(ROOT).as_posix()
    run(
        "go",
        "build",
        "-buildmode=c-shared",
        f"-ldflags={flags}",
        "-o",
        target,
        package,
        cwd=ROOT,
    )
    target.with_suffix(".h").unlink(missing_ok=True)


class Wheel(bdist_wheel):
    """Names the oldest libc that the wheel runs with, where that is glibc, and puts in what the module is made of."""

    def write_wheelfile(self, wheelfile_base: str, *args: str) -> None:
        """Writes the file WHEEL, and beside it the list of what is linked in, where PEP 770 has it."""
        super().write_wheelfile(wheelfile_base, *args)
        # Of a package that is installed in place nothing is built yet.
        if Path(wheelfile_base).parent != Path(self.bdist_dir):
            return
        folder = Path(wheelfile_base) / "sboms"
        folder.mkdir(exist_ok=True)
        contents = run(sys.executable, ROOT / "internal/release/sbom.py", "--linked", cwd=ROOT)
        (folder / "plait.cdx.json").write_text(contents, "utf-8")

    def get_tag(self) -> tuple[str, str, str]:
        """Returns the tags of the Python version, its binary interface, and the platform."""
        python, abi, system = super().get_tag()
        if system.startswith("linux_"):
            # The module needs libc alone, whose versions it names in its table of strings. There is none yet where the
            # package is installed in place.
            modules = [Path(m) for m in self.get_finalized_command("build_ext").get_outputs()]
            versions = [int(v) for m in modules if m.exists() for v in re.findall(rb"GLIBC_2\.(\d+)", m.read_bytes())]
            if versions:
                system = f"manylinux_2_{max(versions)}_{system.removeprefix('linux_')}"
        return python, abi, system


setup(
    ext_modules=[Extension("plait._core", sources=[], py_limited_api=True)],
    cmdclass={"build": Build, "build_ext": BuildGo, "bdist_wheel": Wheel},
    options={"bdist_wheel": {"py_limited_api": f"cp{OLDEST[0]}{OLDEST[1]}"}},
)
