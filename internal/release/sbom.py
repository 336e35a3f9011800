"""Prints what a release is made of, as a CycloneDX document: what is linked in, and which packages the wheel needs.

With --linked it prints what is linked in alone: the wheel has that inside, and names the packages in its metadata.

Modules and their versions are Go's; what no module names is in licences/linked.json, with the licence of everything. A
module that is linked in and has no licence there is an error.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import time
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODULE = "github.com/plait-ml/plait"
GOPY = "github.com/go-python/gopy"
# The packages that pip installs beside the wheel.
REQUIRED = {"numpy": "BSD-3-Clause", "scipy-openblas32": "BSD-2-Clause"}


def output(*command: str, cwd: Path = ROOT) -> str:
    """Returns what a command prints."""
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def versions() -> dict[str, str]:
    """Returns the versions of what is linked in and has one that changes with the machine or with go.mod."""
    listed = output("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", "./capi/libplait")
    found = dict(line.split(" ") for line in set(listed.splitlines()) if line and not line.startswith(MODULE))
    found["go"] = output("go", "env", "GOVERSION").strip().removeprefix("go")
    found[GOPY] = output("go", "list", "-m", "-f", "{{.Version}}", GOPY, cwd=ROOT / "internal/tools").strip()
    if sys.platform == "linux":
        found["libgcc"] = libgcc(*shlex.split(output("go", "env", "CC")))
    return found


def libgcc(*compiler: str) -> str:
    """Returns the version of the compiler's libgcc. Clang has a GCC's, and knows no more than the folder says."""
    try:
        return output(*compiler, "-dumpfullversion").strip()
    except subprocess.CalledProcessError:
        return Path(output(*compiler, "--print-libgcc-file-name").strip()).parent.name


def linked(versions: dict[str, str], table: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Returns the components that are linked in."""
    unknown = versions.keys() - {row["name"] for row in table}
    if unknown:
        raise SystemExit(f"sbom: licences/linked.json does not name {', '.join(sorted(unknown))}, which is linked in")
    components = []
    for row in table:
        version = row.get("version") or versions.get(row["name"])
        if version is None:
            raise SystemExit(f"sbom: licences/linked.json names {row['name']}, which is not linked in")
        purl = row["purl"] if "version" in row else f"{row['purl']}@{version}"
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": row["name"],
                "version": version,
                "scope": "required",
                "licenses": [{"expression": row["licence"]}],
                "purl": purl,
                "properties": [{"name": "plait:linked", "value": "statically"}],
            }
        )
    return components


def required() -> list[dict[str, Any]]:
    """Returns the components that pip installs, in the versions that the tests run with."""
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    pins = (ROOT / "internal/tools/requirements.txt").read_text("utf-8")
    components = []
    for need in needs:
        name = re.split(r"[<>=!~ ]", need)[0]
        pin = re.search(rf"^{re.escape(name)}==(\S+)$", pins, re.M)
        if pin is None or name not in REQUIRED:
            raise SystemExit(f"sbom: {name} has no pin in internal/tools/requirements.txt, or no licence here")
        components.append(
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{name}@{pin[1]}",
                "name": name,
                "version": pin[1],
                "scope": "required",
                "licenses": [{"expression": REQUIRED[name]}],
                "purl": f"pkg:pypi/{name}@{pin[1]}",
                "properties": [
                    {"name": "plait:linked", "value": "no"},
                    {"name": "plait:requirement", "value": need},
                ],
            }
        )
    return components


def document(version: str, epoch: int | None, packages: bool = True) -> dict[str, Any]:
    """Returns the document, the same one for the same commit and tools; an epoch is the time that it names."""
    table = json.loads((ROOT / "licences/linked.json").read_text("utf-8"))
    if sys.platform != "linux":
        table = [row for row in table if row["name"] != "libgcc"]
    components = sorted(linked(versions(), table) + (required() if packages else []), key=lambda c: c["bom-ref"])
    plait = f"pkg:pypi/plait@{version}"
    main = {
        "type": "library",
        "bom-ref": plait,
        "name": "plait",
        "version": version,
        "licenses": [{"expression": "Apache-2.0"}],
        "purl": plait,
    }
    written = {} if epoch is None else {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))}
    body = {
        "metadata": {**written, "component": main},
        "components": components,
        "dependencies": [{"ref": plait, "dependsOn": [c["bom-ref"] for c in components]}],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", **head, **body}


def main() -> None:
    """Prints the document of the version that the package has."""
    version = runpy.run_path(str(ROOT / "python/plait/_version.py"))["__version__"]
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    print(json.dumps(document(version, int(epoch) if epoch else None, "--linked" not in sys.argv), indent=2))


if __name__ == "__main__":
    main()
