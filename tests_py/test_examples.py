"""The examples run, and learn."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import nbformat
import plait
import pytest
from nbclient import NotebookClient
from plait.safetensors import load_file, save_file
from sklearn.datasets import load_digits

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture(autouse=True)
def _folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script imports what lies beside it."""
    for folder in ("", "gpt", "gpt2"):
        monkeypatch.syspath_prepend(EXAMPLES / folder)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name.replace('/', '_')}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SMALL = "--context 16 --width 16 --layers 2 --heads 2 --characters 20000 --sample 1 --lr 1e-2 "


def test_gpt_learns(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = (
        "--steps 40 --batch 8 --context 32 --width 32 --layers 1 --heads 2 --characters 200000 --sample 20 --lr 1e-2"
    )
    start, end = example("gpt/one_device").main(sizes.split())
    assert start > 4
    assert end < start - 0.8
    said = capsys.readouterr().out
    assert "\ndef " in said
    assert re.search(r"^ \d\.\d\d \|\*", said, re.M), "the curve begins at its highest"


def test_gpt_repeats_itself() -> None:
    train = example("gpt/one_device").main
    sizes = SMALL + "--steps 3 --batch 2 --dropout 0.1 --seed "
    runs = [train((sizes + seed).split()) for seed in ("1", "1", "2")]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize(
    ("way", "options"),
    [
        ("ddp", "--batch 5 --devices cpu:0 cpu:1 cpu:2"),
        ("fsdp", "--batch 4 --devices cpu:0 cpu:1"),
        ("pipeline", "--batch 5 --schedule 1f1b --chunks 3"),
        ("pipeline", "--batch 5 --schedule zb-v --chunks 3"),
        ("tensor_parallel", "--batch 4 --devices cpu:0 cpu:1"),
        ("composed", "--batch 4"),
        ("composed", "--batch 4 --pp 1 --fsdp 2"),
    ],
)
def test_gpt_on_several_devices_is_as_on_one(way: str, options: str, capsys: pytest.CaptureFixture[str]) -> None:
    alone = example("gpt/one_device").main(f"{SMALL} --steps 4 {options[:9]}".split())
    capsys.readouterr()
    together = example(f"gpt/{way}").main(f"{SMALL} --steps 4 {options}".split())
    assert together == pytest.approx(alone, rel=1e-5)
    said = capsys.readouterr().out
    if way == "tensor_parallel":
        assert "rank 0 of 2 has 6,576 of" in said


def test_memory_of_a_sharded_gpt_is_as_the_formula_says() -> None:
    # In a process of its own: what other tests have left in memory would count.
    arguments = f"{SMALL} --steps 4 --batch 4 --devices cpu:0 cpu:1".split()
    script = [sys.executable, EXAMPLES / "gpt/fsdp.py", *arguments]
    done = subprocess.run(script, check=True, capture_output=True, text=True)
    peak, allowed = re.search(r"at most ([\d,]+) bytes .* allows ([\d,]+)\n", done.stdout).groups()
    assert int(peak.replace(",", "")) <= int(allowed.replace(",", ""))


def test_digits_are_told_apart_and_served_by_go(tmp_path: Path) -> None:
    digits, saved, server = example("digits"), tmp_path / "digits.safetensors", tmp_path / "serve"
    assert digits.main(["--epochs", "4", "--save", str(saved)]) >= 0.97
    if not shutil.which("go"):
        pytest.skip("Go is not installed")
    flags = os.environ.get("GOFLAGS") or "-trimpath -buildvcs=false -buildmode=pie"  # those of the Makefile
    subprocess.run(
        ["go", "build", "-o", server, "./examples/go/serve"],
        check=True,
        cwd=EXAMPLES.parent,
        env={**os.environ, "GOFLAGS": flags},
    )
    with subprocess.Popen(
        [server, "-model", saved, "-address", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            url = running.stdout.readline().split()[-1]
            pictures = load_digits().data[:50]
            asked = json.dumps({"pictures": pictures.tolist()}).encode()
            with urllib.request.urlopen(f"{url}/classify", asked, timeout=60) as reply:
                said = json.load(reply)
        finally:
            running.send_signal(signal.SIGINT)
        assert running.wait(30) == 0
    model = digits.Network().eval()
    model.load_state_dict(load_file(saved))
    with plait.no_grad():
        wanted = model(plait.tensor(pictures, dtype=plait.float32).view(-1, 1, 8, 8) / 16).softmax(1)
    assert plait.allclose(plait.tensor(said["probabilities"]), wanted, atol=1e-6)
    assert said["digits"] == wanted.argmax(1).tolist()


def test_pictures_are_those_of_the_readme() -> None:
    pictures = example("pictures")
    kept = {p.stem: p.read_text("utf-8") for p in pictures.FOLDER.iterdir()}
    assert kept.keys() == set(re.findall(r"\(pictures/(\w+)\.svg\)", (EXAMPLES / "README.md").read_text("utf-8")))
    drawn = {
        "cartpole": pictures.curve([20.0, 120, 200]),
        "diffusion": pictures.clouds([plait.zeros(5, 2)] * 6),
        "resnet": pictures.shapes(pictures.resnet.draw(8, plait.Generator().manual_seed(3), size=16)[0]),
        "vae": pictures.digits(plait.full((32, 64), 0.5)),
    }
    assert drawn.keys() == kept.keys()
    for name, picture in drawn.items():  # of the same size and style, but for what the training was
        now, before = ElementTree.fromstring(picture), ElementTree.fromstring(kept[name])
        assert now.attrib == before.attrib, name
        assert now[0].text == before[0].text


def test_list_has_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8")
    links = {link.rstrip("/") for link in re.findall(r"\]\(([^)#]+)\)", text)}
    scripts = {str(p.relative_to(EXAMPLES)) for p in EXAMPLES.glob("**/*.py")}
    beside = {"gpt/options.py", "gpt2/bpe.py", "gpt2/gpt2.py"}
    programs = {str(p.parent.relative_to(EXAMPLES)) for p in EXAMPLES.glob("go/*/main.go")}
    assert scripts - beside | programs | {"walkthrough.ipynb"} <= links


def test_examples_are_short() -> None:
    for path in EXAMPLES.glob("**/*.py"):
        assert len(path.read_text("utf-8").splitlines()) <= 125, path.name


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_resnet_tells_shapes_apart(precision: str) -> None:
    options = f"--steps 120 --batch 32 --size 16 --width 8 --precision {precision}".split()
    start, end, accuracy = example("resnet").main(options)
    assert end < start / 2
    assert accuracy > 0.7  # by chance: 0.25


def test_lstm_learns(capsys: pytest.CaptureFixture[str]) -> None:
    start, end = example("lstm").main(
        ["--steps", "30", "--batch", "16", "--length", "32", "--hidden", "64", "--lr", "2e-2"]
    )
    assert start > 4
    assert end < 2.9
    assert "\ndef " in capsys.readouterr().out


def test_lstm_goes_on_with_its_state() -> None:
    lstm = example("lstm")
    model = lstm.Model(20, 16).eval()
    codes = plait.randint(0, 20, (3, 12))
    whole, _ = model(codes)
    first, state = model(codes[:, :5])
    second, _ = model(codes[:, 5:], state)
    assert plait.allclose(plait.cat([first, second], dim=1), whole, atol=1e-5)


def test_vae_draws_digits() -> None:
    start, end, new = example("vae").main(["--epochs", "8", "--batch", "32"])
    assert end < start - 4
    assert new.shape == (512, 64)
    digits = load_digits()
    assert new.mean().item() == pytest.approx(digits.data.mean() / 16, abs=0.03)
    # Where digits have ink, new ones have, and each is nearer to a digit than noise of the same ink is.
    pictures = plait.tensor(digits.data, dtype=plait.float32) / 16
    noise = new.flatten()[plait.randperm(new.numel())].view_as(new)
    near, far = (plait.cdist(x, pictures).min(1).values.mean().item() for x in (new, noise))
    assert near < 0.6 * far


def test_diffusion_finds_the_spiral() -> None:
    diffusion = example("diffusion")
    options = "--steps 1200 --batch 256 --width 64 --lr 5e-3"
    start, end, distance, path = diffusion.main(options.split())
    assert start > 0.8
    assert end < 0.4
    noise = diffusion.distance(path[0], diffusion.spiral(1000))
    assert len(path) == 6 and distance < noise / 3


def test_cart_moves_as_the_physics_say() -> None:
    """A pole that stands still upright falls, away from the push; the numbers are those of the equations by hand."""
    cartpole = example("cartpole")
    carts = cartpole.Carts(2, plait.Generator())
    carts.state = plait.zeros(2, 4)
    assert carts.step(plait.tensor([0, 1])).all()
    push = 10 / 1.1
    turn = -push / (0.5 * (4 / 3 - 0.1 / 1.1))
    wanted = [0, 0.02 * (push - 0.05 * turn / 1.1), 0, 0.02 * turn]
    assert carts.state[1].tolist() == pytest.approx(wanted, rel=1e-5)
    assert carts.state[0].tolist() == pytest.approx([-v for v in wanted], rel=1e-5)
    carts.state = plait.tensor([[2.5, 0, 0, 0], [0, 0, 0.3, 0]])
    assert not carts.step(plait.tensor([0, 1])).any()


def test_cart_learns_to_balance() -> None:
    returns = example("cartpole").main(["--updates", "12", "--carts", "32"])
    assert returns[0] < 40
    assert returns[-1] > 2 * returns[0]


def test_lora_learns_with_few_parameters() -> None:
    said = example("lora").main(["--steps", "150", "--width", "128"])
    assert said["old task"] > 0.85
    assert said["before"] < 0.3
    assert said["after"] > 0.7
    assert said["trained"] == 4 * (64 + 128 + 128 + 128 + 128 + 10)
    assert said["difference"] < 1e-4


def test_functions_of_python_learn() -> None:
    said = example("custom_function").main(["--steps", "200"])
    assert said["robust"] == pytest.approx(2, abs=0.1)
    assert abs(said["squares"] - 2) > 1
    assert said["accuracy"] > 0.85
    assert said["values"] == 2


def test_tokenizer_is_undone() -> None:
    bpe = importlib.import_module("bpe")
    tokenizer = bpe.Tokenizer.learn(" low low low lower newest" * 5, 12)
    for text in ("low lowest", "  été, 12 €\n\tx_y  ", "\0\x7f ¡"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(" low")) == 1
    assert bpe.WORD.findall("They'll be 12  low_x!?\n\n y") == (
        ["They", "'ll", " be", " 12", " ", " low", "_", "x", "!?", "\n\n", " y"]
    )
    assert bpe.printable()[ord(" ")] == "Ġ"  # as in GPT-2's files


def test_gpt2_is_made_saved_and_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--steps 30 --batch 8 --context 32 --width 32 --layers 2 --merges 40 --characters 60000 --lr 1e-2"
    start, end = example("gpt2/train").main([str(tmp_path), *sizes.split()])
    assert end < start - 1
    gpt2, generate, bpe = (importlib.import_module(name) for name in ("gpt2", "generate", "bpe"))
    model, tokenizer = gpt2.GPT2.load(tmp_path), bpe.Tokenizer.load(tmp_path)
    assert model.state_dict()["h.0.attn.c_attn.weight"].shape == (32, 96)

    # With keys and values kept, the likeliest tokens are those of whole passes, also where places run out.
    tokens = tokenizer.encode("def f(")
    kept = list(generate.generate(model, tokens, 60, temperature=0, top_k=1))
    whole = list(tokens)
    for _ in range(32 - len(tokens)):
        whole.append(model(plait.tensor([whole]))[0][0, -1].argmax().item())
    assert kept[: 32 - len(tokens)] == whole[len(tokens) :]
    assert len(kept) == 60

    # Names as other programs write them.
    state = {f"transformer.{k}": v for k, v in load_file(tmp_path / "model.safetensors").items()}
    save_file({**state, "transformer.h.0.attn.bias": plait.ones(1)}, tmp_path / "model.safetensors")
    capsys.readouterr()
    first = generate.main([str(tmp_path), "def f(", "--length", "20", "--seed", "3"])
    assert first.startswith("def f(")
    assert generate.main([str(tmp_path), "def f(", "--length", "20", "--seed", "3"]) == first
    assert "20 tokens" in capsys.readouterr().out


def outputs(cell: nbformat.NotebookNode) -> list[str]:
    """Returns the text that a cell printed or showed."""
    return [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs]


def test_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notebook is kept with its outputs, and every cell runs, with fewer steps."""
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(EXAMPLES / "walkthrough.ipynb", as_version=4)
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1)), "kept as one run left it"
    kept = [outputs(c) for c in cells]
    pictures = [o for c in cells for o in c.outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 2 and not any("Traceback" in text for texts in kept for text in texts)
    assert "epochs = " in cells[0].source and "steps = " in cells[0].source
    cells[0].source = "epochs, steps = 1, 4"
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": EXAMPLES}}).execute()
    for cell, texts in zip(cells, kept, strict=True):
        assert bool(cell.outputs) == bool(texts), cell.source
    assert [outputs(c) for c in cells[1:3]] == kept[1:3]  # these do not depend on the steps


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("gpt/one_device", "--steps 0", "must be at least 1"),
        ("gpt/one_device", "--width 16 --heads 3", "--width 16 must be a multiple of --heads 3"),
        ("gpt/one_device", "--text nowhere", "--text nowhere is not a folder"),
        ("gpt/one_device", "--device tpu", "device: unknown type 'tpu'"),
        ("gpt/ddp", "--devices cpu:0 gpu:99", "GPU"),
        ("gpt/fsdp", "--batch 5", "--batch must be a multiple"),
        ("gpt/tensor_parallel", "--heads 1", "--heads must be a multiple"),
        ("gpt/pipeline", "--schedule 2f2b", "invalid choice: '2f2b'"),
        ("digits", "--epochs 0", "must be at least 1"),
        ("resnet", "--steps 0", "steps and batch must be at least 1"),
        ("lstm", "--batch 0", "steps and batch must be at least 1"),
        ("vae", "--epochs 0", "epochs and batch must be at least 1"),
        ("diffusion", "--steps 0", "steps and batch must be at least 1"),
        ("cartpole", "--carts 0", "updates and carts must be at least 1"),
        ("lora", "--rank 0", "steps and rank must be at least 1"),
        ("custom_function", "--steps -1", "steps must be at least 1"),
        ("gpt2/train", "nowhere --steps 0", "steps and batch must be at least 1"),
    ],
)
def test_examples_say_which_argument_is_wrong(
    name: str, arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        example(name).main(arguments.split())
    assert caught.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_gpt_says_that_there_is_too_little_text(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("def f(): pass\n")
    with pytest.raises(SystemExit, match=r"14 characters of Python in .*: too few to see 64 at once"):
        example("gpt/one_device").main(["--text", str(tmp_path)])
