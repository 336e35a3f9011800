"""The options of the scripts: the sizes of the model and of the training, and the devices."""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plait


class Options(argparse.ArgumentParser):
    """The options. A script for several devices names those that it has by default."""

    def __init__(self, about: str, devices: Sequence[str] = ()) -> None:
        super().__init__(description=about)
        self.add_argument("--steps", type=int, default=1000, help="training steps")
        self.add_argument("--batch", type=int, default=16, help="pieces of text in a step")
        self.add_argument("--context", type=int, default=64, help="characters that the model sees at once")
        self.add_argument("--width", type=int, default=128, help="width of the model")
        self.add_argument("--layers", type=int, default=3, help="transformer blocks")
        self.add_argument("--heads", type=int, default=4, help="attention heads in a block")
        self.add_argument("--dropout", type=float, default=0.0, help="share of activations to drop in training")
        self.add_argument("--lr", type=float, default=3e-3, help="highest learning rate")
        self.add_argument("--text", type=Path, default=Path(sysconfig.get_path("stdlib")), help="a folder of .py files")
        self.add_argument("--characters", type=int, default=2_000_000, help="how much text to read")
        self.add_argument("--sample", type=int, default=300, help="characters to write at the end")
        self.add_argument("--seed", type=int, default=1)
        if devices:
            self.add_argument("--devices", nargs="+", default=list(devices))
        else:
            self.add_argument("--device", default="cpu")

    def parse_args(self, *args: Any, **kwargs: Any) -> argparse.Namespace:
        """Returns the options, or ends the program and says which one is wrong."""
        args = super().parse_args(*args, **kwargs)
        if min(args.steps, args.batch, args.context, args.width, args.layers, args.heads) < 1:
            self.error("steps, batch, context, width, layers and heads must be at least 1")
        if args.width % args.heads:
            self.error(f"--width {args.width} must be a multiple of --heads {args.heads}")
        if not args.text.is_dir():
            self.error(f"--text {args.text} is not a folder")
        try:
            for device in args.devices if "devices" in args else [args.device]:
                plait.empty(0, device=device)
        except (RuntimeError, ValueError) as error:
            self.error(str(error))
        return args
