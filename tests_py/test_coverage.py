"""docs/coverage.md says what is there."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_page_is_what_the_package_has():
    spec = importlib.util.spec_from_file_location("coverage_page", ROOT / "internal/coverage/coverage.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert set(module.missing()) == {(title, name) for title, _, names in module.measure() for name in names}
    assert (ROOT / "docs/coverage.md").read_text("utf-8") == module.page()
