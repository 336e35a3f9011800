"""Whole scripts, with nothing but the import changed, train as under PyTorch."""

import json
import subprocess
import sys
from pathlib import Path

import plait
import pytest

GOLDEN = Path(__file__).parent / "golden"
sys.path.insert(0, str(GOLDEN))
from script_cases import SCRIPTS, Tools  # noqa: E402

NUMBERS = json.loads((GOLDEN / "scripts.json").read_text())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.__name__)
def test_script(script):
    got = [float(v) for v in script(plait, Tools(plait))]
    assert got == pytest.approx(NUMBERS[script.__name__], rel=2e-4, abs=2e-5)


def test_submodules_are_there_without_an_import_of_their_own():
    code = """if True:
        import plait as torch
        torch.utils.data.DataLoader, torch.utils.data.distributed.DistributedSampler, torch.utils.data.sampler.Sampler
        torch.utils.checkpoint.checkpoint, torch.utils.dlpack, torch.optim.swa_utils.AveragedModel
        torch.optim.lr_scheduler.StepLR, torch.nn.utils.rnn.pad_sequence, torch.nn.utils.parametrize
        torch.nn.utils.parametrizations, torch.nn.init, torch.nn.functional, torch.autograd.functional, torch.linalg
        assert not hasattr(torch.optim, "no_such_module") and not hasattr(torch.utils, "no_such_module")
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
