"""Writes scripts.json: the numbers of the scripts under PyTorch. Run it where PyTorch is installed."""

import json
import warnings
from pathlib import Path

import torch
from script_cases import SCRIPTS, Tools

warnings.simplefilter("ignore")
numbers = {s.__name__: [float(v) for v in s(torch, Tools(torch))] for s in SCRIPTS}
Path(__file__).with_name("scripts.json").write_text(json.dumps(numbers, indent=1) + "\n")
