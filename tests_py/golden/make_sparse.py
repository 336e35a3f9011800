"""Writes sparse.json: what PyTorch returns for the cases in sparse_cases.py. Run it where PyTorch is installed."""

import json
import warnings
from pathlib import Path

import torch
from sparse_cases import CASES, facts

warnings.simplefilter("ignore")
saved = {name: facts(torch, case(torch)) for name, case in CASES.items()}
text = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in saved.items())
Path(__file__).with_name("sparse.json").write_text(f"{{\n{text}\n}}\n")
