import os
import subprocess
import sys

import plait
import pytest
from plait import info, nn
from plait.utils.summary import summary


def test_info():
    found = info.collect()
    assert found["versions"]["plait"] == plait.__version__ and "cpu:0" in found["devices"]
    assert found["limits"]["threads"] >= 1
    command = [sys.executable, "-m", "plait.info"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for part in ("versions", "devices", "cpu:0", "threads", "matrix products", plait.__version__):
        assert part in text


def test_info_says_why_there_is_no_gpu():
    program = "import plait; from plait import info; print(info.collect()['devices'].get('gpu', ''))"
    command = [sys.executable, "-c", program]
    env = os.environ | {"PLAIT_GPU_DRIVER": "cuda", "CUDA_VISIBLE_DEVICES": ""}
    text = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    assert text.startswith("there is no GPU: ")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4, bias=False))
        self.head = nn.Linear(4, 2)
        self.head.weight.requires_grad = False

    def forward(self, x):
        return self.head(self.body(self.body[1](x) if x.shape[-1] == 4 else x))


def test_summary():
    model = Net()
    model.train()
    s = summary(model, input_size=(5, 3))
    assert [layer.kind for layer in s.layers] == ["Net", "Sequential", "Linear", "ReLU", "Linear", "Linear"]
    assert [layer.depth for layer in s.layers] == [0, 1, 2, 2, 2, 1]
    assert [layer.output for layer in s.layers] == ["[5, 2]", "[5, 4]", "[5, 4]", "[5, 4]", "[5, 4]", "[5, 2]"]
    assert [layer.parameters for layer in s.layers] == [0, 0, 16, 0, 16, 10]
    assert (s.total_params, s.trainable_params, s.param_bytes) == (42, 34, 168)
    assert s.output_bytes == 4 * (20 + 20 + 20 + 10)
    assert model.training and all(m.training for m in model.modules())
    text = str(s)
    assert "body: Sequential" in text and "parameters: 42" in text and "[5, 4]" in text
    assert "<table>" in s._repr_html_() and "trainable: 34" in s._repr_html_()
    assert [layer.kind for layer in summary(model, input_size=(5, 3), depth=1).layers] == [
        "Net",
        "Sequential",
        "Linear",
    ]
    calls = []
    model.head.forward = lambda x: calls.append(1) or x
    model(plait.ones(1, 3))
    assert calls == [1]


def test_summary_takes_inputs():
    assert plait.summary(nn.Linear(3, 2), inputs=plait.ones(7, 3)).layers[0].output == "[7, 2]"
    with pytest.raises(ValueError, match="either"):
        summary(nn.Linear(3, 2))


def test_tensors_in_notebooks():
    text = plait.ones(2, 3)._repr_html_()
    assert text.startswith("<pre>tensor(") and "float32[2, 3] on cpu" in text
