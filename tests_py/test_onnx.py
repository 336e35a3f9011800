"""Models written as ONNX, run by onnxruntime. Where the packages are not installed, that says what is missing."""

import importlib.util
import io
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import plait
import pytest
from plait import _ops, nn
from plait.nn import functional as F
from plait.onnx import OnnxExporterError, TrainingMode, export, is_in_onnx_export
from plait.onnx._build import TYPES
from plait.onnx._convert import RULES, Converter

ROOT = Path(__file__).resolve().parent.parent


def rows():
    """Returns the names of the operations of the registry."""
    names = {name for name in dir(_ops) if callable(getattr(_ops, name)) and not name.startswith("_")}
    names &= {name for name in names if getattr(getattr(_ops, name), "__module__", "").startswith("plait._ops")}
    return {name for name in names if not (name.endswith("_") and name[:-1] in names)}


def written(name):
    return name in RULES or name.removesuffix("_") in RULES


def test_the_guide_lists_what_is_written():
    guide = (ROOT / "docs/guides/onnx.md").read_text()
    have, lack = guide.split("## Operations\n")[1].split("\nNot written:\n")
    assert [*have.split("\n\n")[1].split(), ""][:-1] == [f"`{n}`" for n in sorted(rows()) if written(n)]
    assert lack.split() == [f"`{n}`" for n in sorted(rows()) if not written(n)]


if importlib.util.find_spec("onnx") is None or importlib.util.find_spec("onnxruntime") is None:

    def test_what_is_missing_is_named():
        with pytest.raises(ModuleNotFoundError, match="pip install onnx"):
            export(nn.Linear(2, 2), plait.zeros(1, 2))

else:
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)

    def call(model, args, kwargs=None):
        with plait.no_grad():
            out = model(*args, **(kwargs or {}))
        return [out] if isinstance(out, plait.Tensor) else leaves(out)

    def leaves(tree):
        if isinstance(tree, plait.Tensor):
            return [tree]
        return [x for part in (tree.values() if isinstance(tree, dict) else tree) for x in leaves(part)]

    def agree(model, program, args, kwargs=None, atol=1e-5):
        want, got = call(model, args, kwargs), program(*args, **(kwargs or {}))
        assert len(want) == len(got)
        for w, g in zip(want, got, strict=True):
            assert w.shape == g.shape and w.dtype == g.dtype
            np.testing.assert_allclose(g.float().numpy(), w.float().numpy(), rtol=1e-5, atol=atol)

    def check(model, *shapes, dynamic=None, **options):
        """Exports a model for the first of several lists of arguments and compares it for all of them."""
        plait.manual_seed(3)
        if isinstance(model, nn.Module):
            model.eval()
        made = [s if isinstance(s, tuple) else (s,) for s in shapes]
        program = export(model, made[0], dynamic_shapes=dynamic, **options)
        onnx.checker.check_model(program.model_proto, full_check=True)
        for args in made:
            agree(model, program, args)
        return program

    class Residual(nn.Module):
        def __init__(self, width, out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
            self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.down = nn.Conv2d(width, out, 1, stride)

        def forward(self, x):
            y = F.relu(self.norm1(self.conv1(x)), inplace=True)
            y = self.norm2(self.conv2(y))
            y += self.down(x)
            return F.relu(y)

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(3, 2, 1))
            self.layers = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2))
            self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 5)

        def forward(self, x):
            x = self.pool(self.layers(self.stem(x)))
            return self.head(x.view(x.size(0), -1))

    def test_residual_network_of_any_batch_and_size():
        model = ResNet()
        for m in model.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.running_mean.normal_()
                m.running_var.uniform_(0.5, 2)
        images = [plait.randn(s) for s in ((1, 3, 32, 32), (3, 3, 40, 56), (2, 3, 33, 64))]
        program = check(model, *images, dynamic={"x": {0: "batch", 2: "height", 3: "width"}})
        (x,) = program.model_proto.graph.input
        assert [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] == ["batch", 3, "height", "width"]
        assert {"stem.0.weight", "head.bias"} <= {t.name for t in program.model_proto.graph.initializer}

    class Language(nn.Module):
        """A model of the form of GPT: attention written out, and by the function."""

        def __init__(self, words=50, length=16, width=32, heads=4):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.heads, self.norm = heads, nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.head = nn.Linear(width, words, bias=False)
            self.head.weight = self.words.weight
            self.register_buffer("mask", plait.tril(plait.ones(length, length)).view(1, 1, length, length))

        def forward(self, idx):
            b, t = idx.shape
            x = self.words(idx) + self.places(plait.arange(0, t, device=idx.device))
            q, k, v = self.qkv(self.norm(x)).split(x.shape[-1], dim=2)
            q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in (q, k, v))
            scores = (q @ k.transpose(-2, -1)) * (1.0 / 8**0.5)
            scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
            y = F.softmax(scores, -1) @ v + F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, -1))
            x = x + self.down(F.gelu(self.up(x)))
            return self.head(self.norm(x)), x[:, [-1], :]

    def test_language_model_of_any_batch_and_length():
        texts = [plait.randint(0, 50, s) for s in ((2, 7), (1, 1), (3, 16), (5, 2))]
        program = check(Language(), *texts, dynamic=({0: "batch", 1: "time"},))
        assert "head.weight" not in {t.name for t in program.model_proto.graph.initializer}  # it is words.weight

    def test_transformer():
        layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)
        size = {0: "batch", 1: "time"}
        check(layers, plait.randn(2, 5, 16), plait.randn(4, 9, 16), dynamic={"src": size})
        hidden = plait.zeros(2, 5, dtype=plait.bool)
        hidden[1, 3:] = True
        options = {"src_key_padding_mask": hidden}
        x = plait.randn(2, 5, 16)
        program = export(layers, (x, options), dynamic_shapes={"src": size, "src_key_padding_mask": size})
        agree(layers, program, (x,), options)
        check(nn.Transformer(16, 4, 1, 1, 32, batch_first=True), (x, plait.randn(2, 3, 16)))

    @pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
    def test_recurrent_layers(layer):
        size = {0: "a", 1: "b"}
        for options in ({}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}):
            dynamic = {"input": size} if layer is not nn.RNN else None
            sizes = [(4, 3, 6), (7, 2, 6)] if dynamic else [(4, 3, 6)]
            check(layer(6, 8, **options), *map(plait.randn, sizes), dynamic=dynamic)
        if layer is nn.RNN:
            with pytest.raises(OnnxExporterError, match="must not depend on sizes"):
                check(nn.RNN(6, 8), plait.randn(4, 3, 6), dynamic={"input": {0: "time"}})

    def test_changes_in_place_and_views():
        def f(x):
            y = plait.zeros(x.shape[0], 4)
            y[:, :2] = x[:, :2]
            y[:, 2] += x.sum(1)
            row = y[0]
            y.mul_(2)
            row[3:] = 7
            z = x.clone().t()
            z[1] -= 1
            z.view(-1, 1) if z.is_contiguous() else z.add_(1)
            w = x.clone()
            w[w > 0] = 0
            a, b = x.clone().chunk(2, 1)
            b.copy_(a)
            c, d = x.clone(), x.clone()
            c[:1].fill_(3)
            d[:, :1].zero_()
            return y, row, z, w, a, b, c, d, x[:, plait.tensor([True, False, True, True])]

        check(f, plait.randn(3, 4), plait.randn(5, 4), dynamic=({0: "n"},))

    def test_numbers_that_follow_from_sizes():
        def f(x, y):
            n, m = x.shape
            both = plait.cat([x, y])
            assert both.shape[0] == n + y.shape[0]
            half = x[:, : m // 2]
            return (
                x.reshape(n * m), x.reshape(-1), both.view(both.shape[0] * m, 1), half, plait.arange(n * 2 + 1),
                plait.full((m,), n), x / n, plait.tril(plait.ones(n, m)), x.unsqueeze(0).expand(3, n, m),
                F.pad(x, (m, 0)), plait.tensor([n, m]), x[n - 1], x.repeat_interleave(2, 1), x.split(n),
            )  # fmt: skip

        sizes = [((3, 4), (2, 4)), ((5, 6), (1, 6)), ((1, 2), (7, 2))]
        args = [tuple(plait.randn(s) for s in pair) for pair in sizes]
        check(f, *args, dynamic=({0: "n", 1: "m"}, {0: "k", 1: "m"}))

    def test_distances_of_rows():
        check(lambda x: (F.pdist(x), F.pdist(x, 3.0)), plait.randn(4, 3))

    def test_dtypes():
        def f(x, i, m):
            return (
                x.half() * 2, x.to(plait.bfloat16).float(), x.double().exp(), x.int(), i + 1, i.float() * x[0, 0],
                i // 3, i % 3, -i // 2, m & (x > 0).any(1), ~m, m.sum(), x.long(), i * m, i / 2, x.abs() ** 0.5,
            )  # fmt: skip

        check(f, (plait.randn(3, 4), plait.arange(-1, 2), plait.tensor([True, False, True])))

    @pytest.mark.parametrize(
        ("message", "model"),
        [
            ("where for a choice", lambda x: x if x.sum() > 0 else -x),
            ("where for a choice", lambda x: x * x.max().item()),
            ("fft_fft for complex64; special_airy_ai", lambda x: (plait.fft.fft(x).abs(), plait.special.airy_ai(x))),
            ("only whole numbers can follow", lambda x: x / x.shape[0] ** 0.5),
            ("number of steps of a loop", lambda x: sum(x[i] for i in range(x.shape[0]))),
            ("differs with the sizes", lambda x: x + plait.tensor(np.ones((x.shape[0], 1), np.float32))),
            ("takes another tensor|where it did", lambda x: x + (x * 2 if x.shape[0] > 3 else x)),
            ("made outside of what is recorded", lambda x: plait.tensor([[1.0] * 4] * x.shape[0]).add_(x)),
            ("it cannot be recorded", lambda x: setattr(x, "data", x * 2)),
            ("nonzero; index with a mask", lambda x: (x.nonzero(), x[x > 0])),
            ("one_hot with a number of classes", lambda x: F.one_hot((x > 0).long())),
            ("results must be tensors", lambda x: (x, x.shape[0])),
        ],
    )
    def test_what_cannot_be_written_is_refused(message, model):
        with pytest.raises((OnnxExporterError, NotImplementedError), match=message):
            export(model, plait.randn(3, 4), dynamic_axes={"x": {0: "n"}})
        assert not is_in_onnx_export()

    def test_missing_operations_name_their_modules():
        class Inner(nn.Module):
            def forward(self, x):
                return plait.special.airy_ai(x)

        model = nn.Sequential(nn.Linear(2, 2), Inner())
        with pytest.raises(OnnxExporterError, match=r"special_airy_ai \(in 1\)"):
            export(model, plait.randn(1, 2))

    def test_parameters_changed_in_training_are_refused():
        model = nn.BatchNorm1d(3).train()
        with pytest.raises(NotImplementedError, match="eval mode"):
            export(model, plait.randn(4, 3), training=TrainingMode.TRAINING)
        check(model.train(), plait.randn(4, 3))
        assert not model.training
        export(model.train(), plait.randn(4, 3))
        assert model.training

    def test_files(tmp_path):
        model = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 2)).eval()
        x = plait.randn(3, 40)
        path, file = tmp_path / "model.onnx", io.BytesIO()
        program = export(model, x, path, input_names=["features"], output_names=["scores"])
        program.save(file)
        assert file.getvalue() == path.read_bytes()
        for destination in (path, tmp_path / "outside.onnx"):
            program.save(destination, external_data=destination != path)
            session = onnxruntime.InferenceSession(str(destination), providers=["CPUExecutionProvider"])
            (y,) = session.run(["scores"], {"features": x.numpy()})
            np.testing.assert_allclose(y, model(x).detach().numpy(), atol=1e-5)
        assert (tmp_path / "outside.onnx.data").stat().st_size >= 4 * 40 * 30
        export(model, x, path, export_params=False)
        bare = onnx.load(path).graph
        assert not bare.initializer and [v.name for v in bare.input][1:] == ["0.weight", "0.bias", "2.weight", "2.bias"]
        with pytest.raises(TypeError, match="external_data"):
            program.save(file, external_data=True)
        with pytest.raises(ValueError, match="opset_version=17"):
            export(model, x, opset_version=17)
        with pytest.raises(ValueError, match="sizes with one name must be equal"):
            export(model, x, dynamic_axes={"input": {0: "n", 1: "n"}})

    class _Recorded:
        """A graph of one sample of a row."""

        def __init__(self, line):
            self.values = [(v["dtype"], v["shape"]) for v in line["values"]]
            self.nodes = [{**n, "args": {a["name"]: a["value"] for a in n["args"] or []}} for n in line["nodes"]]
            self.inputs, self.outputs = ([a["value"] for a in line[k] or []] for k in ("inputs", "outputs"))
            self.parameters = {}
            self.constants = {a["value"]: plait.from_numpy(array(a)) for a in line["constants"] or []}

    def array(a):
        return np.asarray([float(v) for v in a["values"]]).reshape(a["shape"]).astype(TYPES[a["dtype"]][1])

    def known(line):
        return all(a["dtype"] in TYPES for k in ("inputs", "outputs") for a in line[k] or [])

    @pytest.mark.parametrize("opset", [18, 20])
    def test_every_row(opset):
        """Each sample of each row with a form in ONNX gives what the row gives."""
        assert shutil.which("go"), "the samples are the registry's, which Go has"
        made = subprocess.run(
            ["go", "run", "./internal/gen/graphs"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        compared = set()
        for text in made.stdout.splitlines():
            line = json.loads(text)
            if not known(line):
                continue
            where = f"{line['row']}, sample {line['sample']}"
            try:
                names = [[f"{k}{i}" for i in range(len(line[k] or []))] for k in ("inputs", "outputs")]
                model = Converter(onnx, opset, _Recorded(line)).convert(*names, {}, {})
            except OnnxExporterError:
                continue
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            feed = {name: array(a) for name, a in zip(names[0], line["inputs"] or [], strict=True)}
            tolerance = 1e-5 * max(line["loose"], 1)
            for a, got in zip(line["outputs"], session.run(None, feed), strict=True):
                want = array(a)
                assert got.shape == want.shape and got.dtype == want.dtype, where
                finite = np.abs(np.where(np.isfinite(want.astype(float)), want, 0)).max(initial=1)
                np.testing.assert_allclose(
                    got.astype(float), want.astype(float), rtol=tolerance, atol=tolerance * finite, err_msg=where
                )
            compared.add(line["row"])
        # The samples of these have no constant numbers of repeats, or there are none: they are compared above.
        assert {n for n in rows() if written(n)} - compared == {"copy_", "fill_", "zero_", "repeat_interleave"}
