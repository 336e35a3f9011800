"""Event files, read back by the package that shows them. Where it is not installed, that says what is missing."""

import importlib.util
import io
import wave

import numpy as np
import plait
import pytest

if importlib.util.find_spec("tensorboard") is None:

    def test_what_is_missing_is_named():
        with pytest.raises(ModuleNotFoundError, match="pip install tensorboard"):
            importlib.import_module("plait.utils.tensorboard")

    pytest.skip("tensorboard is not installed", allow_module_level=True)

from PIL import Image
from plait.utils.tensorboard import SummaryWriter, summary
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from tensorboard.util import tensor_util

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")  # of what that package uses


def events(folder):
    return [e for f in sorted(folder.glob("events.*")) for e in LegacyEventFileLoader(str(f)).Load()]


def values(folder):
    """Returns the step and the value of each tag."""
    return {v.tag: (e.step, v) for e in events(folder) for v in e.summary.value}


def pixels(value):
    return np.asarray(Image.open(io.BytesIO(value.image.encoded_image_string)))


def test_scalars(tmp_path):
    with SummaryWriter(tmp_path, filename_suffix=".end") as writer:
        writer.add_scalar("loss/train", plait.tensor([0.5], requires_grad=True), 3, walltime=12.5)
        writer.add_scalar("new", 0.1, plait.tensor(4), new_style=True)
        writer.add_scalar("double", 0.1, double_precision=True)
        writer.add_scalars("both/of", {"a": 1, "b": np.float32(2)}, 5)
        writer.add_tensor("tensor", plait.ones(2, 2, dtype=plait.bfloat16))
        with pytest.raises(ValueError, match="want one number for 'two', got 2"):
            writer.add_scalar("two", plait.ones(2))
    assert [f.name[-4:] for f in tmp_path.glob("events*")] == [".end"]
    found = values(tmp_path)
    assert (found["loss/train"][0], found["loss/train"][1].simple_value) == (3, 0.5)
    assert [e.wall_time for e in events(tmp_path) if e.step == 3] == [12.5]
    assert found["new"][0] == 4 and found["new"][1].metadata.plugin_data.plugin_name == "scalars"
    assert tensor_util.make_ndarray(found["double"][1].tensor) == np.float64(0.1)
    assert tensor_util.make_ndarray(found["tensor"][1].tensor).tolist() == [[1, 1], [1, 1]]
    assert {n: values(tmp_path / f"both_of_{n}")["both/of"][1].simple_value for n in "ab"} == {"a": 1, "b": 2}


def test_steps_to_hide_and_writers_that_go_on(tmp_path):
    writer = SummaryWriter(tmp_path, purge_step=7)
    writer.add_scalar("x", 1, 7)
    writer.close()
    writer.add_scalar("y", 2, 8)
    writer.close()
    assert [e.step for e in events(tmp_path) if e.HasField("session_log")] == [7]
    assert {t: s for t, (s, _) in values(tmp_path).items()} == {"x": 7, "y": 8}


def test_histograms(tmp_path):
    drawn = plait.randn(1000)
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("own", drawn, 1)
        writer.add_histogram("numpy", drawn, 1, bins="auto", max_bins=5)
        writer.add_histogram("constant", plait.zeros(4))
        writer.add_histogram_raw("raw", 0, 2, 2, 2, 2, [0, 1, 2], [0, 1, 1])
        with pytest.raises(ValueError, match="'none' has no values"):
            writer.add_histogram("none", plait.ones(0))
    found = {t: v.histo for t, (_, v) in values(tmp_path).items()}
    a = drawn.numpy().astype(float)
    for name in ("own", "numpy"):
        h = found[name]
        assert (h.min, h.max, h.num) == (a.min(), a.max(), 1000)
        assert (h.sum, h.sum_squares) == pytest.approx((a.sum(), (a * a).sum()))
        limits, counts = list(h.bucket_limit), list(h.bucket)
        assert len(limits) == len(counts) and counts[0] == 0 and sum(counts) == 1000
        assert counts[1:] == np.histogram(a, limits)[0].tolist()
    assert len(found["numpy"].bucket) <= 6
    assert sum(found["constant"].bucket) == 4 and list(found["raw"].bucket) == [0, 1, 1]
    assert len(summary.default_bins()) == 2 * 774 + 1


def test_images(tmp_path):
    image = plait.rand(3, 4, 5)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("chw", image)
        writer.add_image("hwc", (image * 255).to(plait.uint8).permute(1, 2, 0), dataformats="HWC")
        writer.add_image("hw", image[0], dataformats="HW")
        writer.add_images("grid", plait.ones(9, 1, 2, 3))
        writer.add_image_with_boxes("boxes", plait.zeros(3, 20, 20), plait.tensor([[2.0, 2, 10, 10]]), labels=["a"])
        with pytest.raises(ValueError, match="wants 3 dimensions"):
            writer.add_image("x", image[0])
        with pytest.raises(ValueError, match="want 1, 3 or 4 channels, got 2"):
            writer.add_image("x", image[:2])
    found = {t: pixels(v) for t, (_, v) in values(tmp_path).items()}
    assert (found["chw"] == (image * 255).to(plait.uint8).permute(1, 2, 0).numpy()).all()
    assert (found["hwc"] == found["chw"]).all() and (found["hw"] == found["chw"][..., :1]).all()
    grid = found["grid"]
    assert grid.shape == (4, 24, 3) and grid[:2].min() == 255 and grid[2:, 3:].max() == 0
    assert found["boxes"][2, 5].tolist() == [255, 0, 0]


def test_figures(tmp_path):
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(2, 1), dpi=50)
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("open", figure, close=False)
        assert plt.fignum_exists(figure.number)
        writer.add_figure("closed", [figure, figure])
    assert not plt.fignum_exists(figure.number)
    found = {t: pixels(v).shape for t, (_, v) in values(tmp_path).items()}
    assert found == {"open": (50, 100, 4), "closed": (50, 200, 4)}


def test_texts_and_sounds(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("note", "# Titel, größer", 2)
        writer.add_audio("tone", plait.tensor([[0.0, 1.0, -2.0]]), sample_rate=8000)
    found = values(tmp_path)
    step, text = found["note/text_summary"]
    assert (step, tensor_util.make_ndarray(text.tensor)[0].decode()) == (2, "# Titel, größer")
    with wave.open(io.BytesIO(found["tone"][1].audio.encoded_audio_string)) as sound:
        assert sound.getframerate() == 8000
        assert np.frombuffer(sound.readframes(3), "<i2").tolist() == [0, 32767, -32767]


def test_hyperparameters(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        given = {"lr": 0.1, "layers": plait.tensor(2), "wide": True, "kind": "adam", "none": None}
        writer.add_hparams(given, {"accuracy": 0.9}, {"kind": ["adam", "sgd"]}, run_name="run", global_step=4)
        with pytest.raises(ValueError, match="x wants a bool, number or string, got complex"):
            writer.add_hparams({"x": 1j}, {})
        with pytest.raises(TypeError, match="metric_dict wants a dict, got list"):
            writer.add_hparams({}, [])
    found = values(tmp_path / "run")
    assert found["accuracy"][0] == 4 and found["accuracy"][1].simple_value == pytest.approx(0.9)
    content = found[hparams_metadata.SESSION_START_INFO_TAG][1].metadata.plugin_data.content
    start = hparams_metadata.parse_session_start_info_plugin_data(content).hparams
    got = {k: getattr(v, v.WhichOneof("kind")) for k, v in start.items()}
    assert got == {"lr": 0.1, "layers": 2.0, "wide": True, "kind": "adam"}
    content = found[hparams_metadata.EXPERIMENT_TAG][1].metadata.plugin_data.content
    experiment = hparams_metadata.parse_experiment_plugin_data(content)
    assert [list(i.domain_discrete) for i in experiment.hparam_infos] == [[], [], [], ["adam", "sgd"]]


def test_embeddings(tmp_path):
    from google.protobuf import text_format

    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(plait.eye(5), ["a", "b", "c", "d", "e"], plait.rand(5, 3, 4, 4), 1)
        writer.add_embedding(plait.eye(2), [["a", 1], ["b", 2]], tag="other", metadata_header=["name", "number"])
        with pytest.raises(ValueError, match="1 labels for 2 vectors"):
            writer.add_embedding(plait.eye(2), ["a"])
    config = text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), ProjectorConfig())
    first, second = config.embeddings
    assert np.loadtxt(tmp_path / first.tensor_path).tolist() == np.eye(5).tolist()
    assert (tmp_path / second.metadata_path).read_text() == "name\tnumber\na\t1\nb\t2\n"
    with Image.open(tmp_path / first.sprite.image_path) as sprite:
        assert sprite.size == (12, 12)


def test_curves_charts_and_meshes(tmp_path):
    labels, predictions = plait.tensor([1, 1, 0, 0]), plait.tensor([0.9, 0.4, 0.6, 0.1])
    with SummaryWriter(tmp_path) as writer:
        writer.add_pr_curve("curve", labels, predictions, num_thresholds=3)
        writer.add_custom_scalars_multilinechart(["a", "b"], "both")
        writer.add_mesh("mesh", plait.rand(1, 4, 3), faces=plait.tensor([[[0, 1, 2]]]))
        with pytest.raises(ValueError, match="from 0 to 1"):
            writer.add_pr_curve("curve", labels, predictions + 1)
    found = values(tmp_path)
    rows = tensor_util.make_ndarray(found["curve"][1].tensor)
    assert rows[:4].tolist() == [[2, 1, 0], [2, 1, 0], [0, 1, 2], [0, 1, 2]]
    assert rows[4:].tolist() == [[0.5, 0.5, 0], [1, 0.5, 0]]
    assert {"custom_scalars__config__", "mesh_VERTEX", "mesh_FACE"} <= found.keys()


@pytest.mark.parametrize(("name", "args"), [("add_graph", [None]), ("add_onnx_graph", [""]), ("add_video", ["x", 1])])
def test_what_is_refused(tmp_path, name, args):
    with SummaryWriter(tmp_path) as writer, pytest.raises(NotImplementedError, match=name):
        getattr(writer, name)(*args)


def test_behind_the_door(tmp_path, monkeypatch):
    import sys

    import plait.torch

    if "torch" in sys.modules:
        pytest.skip("torch is imported")
    plait.torch.install()
    try:
        from torch.utils.tensorboard import SummaryWriter as Found
        from torch.utils.tensorboard.writer import FileWriter

        assert Found is SummaryWriter and FileWriter.__module__ == "plait.utils.tensorboard.writer"
        monkeypatch.chdir(tmp_path)
        Found(comment="end").close()
        assert [p.name[-3:] for p in (tmp_path / "runs").iterdir()] == ["end"]
    finally:
        plait.torch.uninstall()
