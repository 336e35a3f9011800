"""What event files hold: each function returns a summary, in the form that TensorBoard's plugins read."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto import histogram_pb2
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as layout_metadata
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.mesh import metadata as mesh_metadata
from tensorboard.plugins.mesh import plugin_data_pb2 as mesh_pb2
from tensorboard.plugins.pr_curve import metadata as curve_metadata
from tensorboard.plugins.scalar import metadata as scalar_metadata
from tensorboard.plugins.text import metadata as text_metadata
from tensorboard.util import tensor_util

from plait._engine.runtime import is_tensor
from plait._tensors.arrays import to_numpy

_COLUMNS = 8  # of images in a grid
_LEAST = 1e-7  # what precision and recall divide by where there is nothing


def as_array(values: Any) -> np.ndarray:
    """Returns the numbers of a tensor, array, sequence or number as an array."""
    return to_numpy(values.detach()) if is_tensor(values) else np.asarray(values)


def _one(tag: str, **value: Any) -> Summary:
    return Summary(value=[Summary.Value(tag=tag, **value)])


def scalar(tag: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Summary:
    """Returns the summary of a number, a float32 unless it is of the new style and double precision.

    Raises:
        ValueError: for more than one number.
    """
    a = as_array(value)
    if a.size != 1:
        raise ValueError(f"add_scalar: want one number for {tag!r}, got {a.size}")
    if not new_style and not double_precision:
        return _one(tag, simple_value=float(a.reshape(())))
    number = np.asarray(a.reshape(()), np.float64 if double_precision else np.float32)
    return _one(
        tag, tensor=tensor_util.make_tensor_proto(number), metadata=scalar_metadata.create_summary_metadata("", "")
    )


def tensor_proto(tag: str, tensor: Any) -> Summary:
    """Returns the summary of a tensor, with its dtype."""
    return _one(tag, tensor=tensor_util.make_tensor_proto(as_array(tensor)))


def default_bins() -> np.ndarray:
    """Returns TensorBoard's own edges, which grow by a tenth each from 1e-12 to 1e20, on both sides of zero."""
    positive = 1e-12 * 1.1 ** np.arange(np.ceil(np.log(1e32) / np.log(1.1)))
    return np.concatenate([-positive[::-1], [0], positive])


def histogram(tag: str, values: Any, bins: Any, max_bins: int | None = None) -> Summary:
    """Returns the summary of values counted in bins: "tensorflow", or what `numpy.histogram` takes.

    Raises:
        ValueError: for no values.
    """
    a = as_array(values).astype(np.float64).reshape(-1)
    if not a.size:
        raise ValueError(f"add_histogram: {tag!r} has no values")
    counts, edges = np.histogram(a, default_bins() if isinstance(bins, str) and bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        starts = np.arange(0, len(counts), -(-len(counts) // max_bins))
        counts, edges = np.add.reduceat(counts, starts), np.append(edges[starts], edges[-1])
    filled = np.flatnonzero(counts)
    first, last = (filled[0], filled[-1] + 1) if filled.size else (0, len(counts))
    # A bucket has its upper edge alone, so an empty one in front tells where the first begins.
    limits, buckets = edges[first : last + 1], np.concatenate([[0], counts[first:last]])
    return histogram_raw(tag, a.min(), a.max(), a.size, a.sum(), a.dot(a), limits.tolist(), buckets.tolist())


def histogram_raw(
    tag: str,
    min: float,
    max: float,
    num: float,
    sum: float,
    sum_squares: float,
    bucket_limits: Sequence[float],
    bucket_counts: Sequence[float],
) -> Summary:
    """Returns the summary of a histogram that has been made."""
    if len(bucket_limits) != len(bucket_counts):
        raise ValueError(
            f"add_histogram_raw: {len(bucket_limits)} limits and {len(bucket_counts)} counts, want as many"
        )
    proto = histogram_pb2.HistogramProto(
        min=min,
        max=max,
        num=num,
        sum=sum,
        sum_squares=sum_squares,
        bucket_limit=bucket_limits,
        bucket=bucket_counts,
    )
    return _one(tag, histo=proto)


def as_pixels(values: Any, dataformats: str, name: str) -> np.ndarray:
    """Returns an image, or a grid of several, as bytes of shape (height, width, channels).

    Args:
        values: bytes, or floats from 0 to 1
        dataformats: what the dimensions are, such as "CHW", "HWC", "HW" or "NCHW"
        name: of the function, for errors
    """
    a, axes = as_array(values), dataformats.upper()
    if len(set(axes)) != len(axes) or set(axes) - set("NCHW") or not set("HW") <= set(axes):
        raise ValueError(f"{name}: dataformats wants H, W and perhaps C and N, got {dataformats!r}")
    if a.ndim != len(axes):
        raise ValueError(f"{name}: dataformats {dataformats!r} wants {len(axes)} dimensions, got shape {a.shape}")
    if a.dtype != np.uint8:
        a = (a.astype(np.float64) * 255).clip(0, 255).astype(np.uint8)
    for missing in "CN":
        if missing not in axes:
            a, axes = a[None], missing + axes
    a = a.transpose([axes.index(x) for x in "NHWC"])
    if a.shape[3] == 1:
        a = np.repeat(a, 3, axis=3)
    n, height, width, channels = a.shape
    if channels not in (3, 4):
        raise ValueError(f"{name}: want 1, 3 or 4 channels, got {channels}")
    columns = min(n, _COLUMNS)
    rows = -(-n // columns)
    grid = np.zeros((rows * columns, height, width, channels), np.uint8)
    grid[:n] = a
    grid = grid.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return grid.reshape(rows * height, columns * width, channels)


def encoded(pixels: np.ndarray) -> bytes:
    """Returns pixels as a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()


def image(tag: str, pixels: np.ndarray) -> Summary:
    """Returns the summary of an image that `as_pixels` made."""
    height, width, channels = pixels.shape
    proto = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=encoded(pixels))
    return _one(tag, image=proto)


def with_boxes(pixels: np.ndarray, boxes: Any, labels: Sequence[str] | None, rescale: float) -> np.ndarray:
    """Returns pixels with rectangles (left, top, right, bottom), and their labels."""
    from PIL import Image, ImageDraw

    picture = Image.fromarray(pixels)
    draw = ImageDraw.Draw(picture)
    for i, box in enumerate(as_array(boxes).reshape(-1, 4).tolist()):
        draw.rectangle(box, outline="red", width=2)
        if labels is not None:
            draw.text((box[0] + 3, box[1] + 2), labels[i], fill="red")
    if rescale != 1:
        picture = picture.resize((int(picture.width * rescale), int(picture.height * rescale)))
    return np.asarray(picture)


def figures(figure: Any) -> np.ndarray:
    """Returns matplotlib's figures as pixels of shape (number, height, width, 4)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn = []
    for f in figure if isinstance(figure, Sequence) else [figure]:
        canvas = FigureCanvasAgg(f)
        canvas.draw()
        drawn.append(np.asarray(canvas.buffer_rgba()))
    return np.stack(drawn)


def audio(tag: str, sound: Any, sample_rate: int) -> Summary:
    """Returns the summary of a sound: one channel, from -1 to 1, as 16 bits."""
    a = as_array(sound).astype(np.float64).squeeze()
    if a.ndim != 1:
        raise ValueError(f"add_audio: want one channel, got shape {a.shape}")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes((a.clip(-1, 1) * 32767).astype("<i2").tobytes())
    proto = Summary.Audio(
        sample_rate=sample_rate,
        num_channels=1,
        length_frames=len(a),
        encoded_audio_string=file.getvalue(),
        content_type="audio/wav",
    )
    return _one(tag, audio=proto)


def text(tag: str, words: str) -> Summary:
    """Returns the summary of a text in Markdown."""
    proto = tensor_util.make_tensor_proto(np.array([words.encode()], object))
    return _one(f"{tag}/text_summary", tensor=proto, metadata=text_metadata.create_summary_metadata("", ""))


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int, weights: Any = None) -> Summary:
    """Returns the summary of precision and recall at evenly spaced thresholds.

    Args:
        tag: the name
        labels: of each sample, whether it is positive
        predictions: of each sample, the probability that it is
        num_thresholds: how many, from 0 to 1
        weights: of the samples; 1 by default
    """
    positive, probability = as_array(labels).reshape(-1).astype(bool), as_array(predictions).reshape(-1)
    weight = np.broadcast_to(as_array(1.0 if weights is None else weights).reshape(-1), positive.shape)
    if not probability.size or probability.min() < 0 or probability.max() > 1:
        raise ValueError("add_pr_curve: predictions are probabilities, from 0 to 1")
    bins = np.floor(probability * (num_thresholds - 1)).astype(int)
    found = np.bincount(bins, weight * positive, num_thresholds)[::-1].cumsum()[::-1]
    wrong = np.bincount(bins, weight * ~positive, num_thresholds)[::-1].cumsum()[::-1]
    missed, rejected = found[0] - found, wrong[0] - wrong
    precision = found / np.maximum(_LEAST, found + wrong)
    recall = found / np.maximum(_LEAST, found + missed)
    return pr_curve_raw(tag, found, wrong, rejected, missed, precision, recall, num_thresholds)


def pr_curve_raw(
    tag: str,
    true_positives: Any,
    false_positives: Any,
    true_negatives: Any,
    false_negatives: Any,
    precision: Any,
    recall: Any,
    num_thresholds: int,
) -> Summary:
    """Returns the summary of a curve that has been computed."""
    rows = (true_positives, false_positives, true_negatives, false_negatives, precision, recall)
    proto = tensor_util.make_tensor_proto(np.stack([as_array(r) for r in rows]).astype(np.float32))
    return _one(tag, tensor=proto, metadata=curve_metadata.create_summary_metadata("", "", num_thresholds))


def custom_scalars(layout: Mapping[str, Mapping[str, tuple[str, Sequence[str]]]]) -> Summary:
    """Returns the summary of a layout of charts: by category and title, a kind and tags."""
    categories = []
    for category, charts in layout.items():
        made = []
        for title, (kind, tags) in charts.items():
            if kind.lower() == "margin":
                value, lower, upper = tags
                series = layout_pb2.MarginChartContent.Series(value=value, lower=lower, upper=upper)
                made.append(layout_pb2.Chart(title=title, margin=layout_pb2.MarginChartContent(series=[series])))
            else:
                made.append(layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=tags)))
        categories.append(layout_pb2.Category(title=category, chart=made))
    data = layout_pb2.Layout(category=categories).SerializeToString()
    proto = tensor_util.make_tensor_proto(np.array(data, object))
    metadata = layout_metadata.create_summary_metadata()
    return _one(layout_metadata.CONFIG_SUMMARY_TAG, tensor=proto, metadata=metadata)


def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config: Mapping[str, Any] | None) -> Summary:
    """Returns the summary of meshes, of shape (number, points, 3) each part."""
    content = mesh_pb2.MeshPluginData.ContentType
    parts = [(vertices, content.VERTEX, np.float32), (faces, content.FACE, np.int32), (colors, content.COLOR, np.uint8)]
    there = [(as_array(p).astype(dtype), kind) for p, kind, dtype in parts if p is not None]
    kinds = mesh_metadata.get_components_bitmask([kind for _, kind in there])
    values = []
    for a, kind in there:
        name = mesh_metadata.get_instance_name(tag, kind)
        about = mesh_metadata.create_summary_metadata(
            tag, tag, kind, kinds, list(a.shape), json_config=json.dumps(config or {}, sort_keys=True)
        )
        values.append(Summary.Value(tag=name, tensor=tensor_util.make_tensor_proto(a), metadata=about))
    return Summary(value=values)


def hparams(
    hparam_dict: Mapping[str, Any],
    metric_dict: Mapping[str, Any],
    hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None,
) -> tuple[Summary, Summary, Summary]:
    """Returns the summaries of an experiment, of a run's start with its hyperparameters, and of its end.

    Raises:
        ValueError: for a hyperparameter that is no bool, number, string or tensor of one element.
    """
    for name, got in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(got, Mapping):
            raise TypeError(f"add_hparams: {name} wants a dict, got {type(got).__name__}")
    start, infos = plugin_data_pb2.SessionStartInfo(), []
    for name, given in hparam_dict.items():
        if given is None:
            continue
        value = as_array(given).item() if not isinstance(given, str) else given
        kind = "BOOL" if isinstance(value, bool) else "STRING" if isinstance(value, str) else "FLOAT64"
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"add_hparams: {name} wants a bool, number or string, got {type(given).__name__}")
        field = {"BOOL": "bool_value", "STRING": "string_value", "FLOAT64": "number_value"}[kind]
        setattr(start.hparams[name], field, value)
        info = api_pb2.HParamInfo(name=name, type=api_pb2.DataType.Value(f"DATA_TYPE_{kind}"))
        for choice in (hparam_domain_discrete or {}).get(name, ()):
            setattr(info.domain_discrete.values.add(), field, choice)
        infos.append(info)
    metrics = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=m)) for m in metric_dict]
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.Value("STATUS_SUCCESS"))
    experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=metrics)

    def summary(tag: str, **data: Any) -> Summary:
        content = plugin_data_pb2.HParamsPluginData(version=hparams_metadata.PLUGIN_DATA_VERSION, **data)
        return _one(tag, metadata=hparams_metadata.create_summary_metadata(content))

    return (
        summary(hparams_metadata.EXPERIMENT_TAG, experiment=experiment),
        summary(hparams_metadata.SESSION_START_INFO_TAG, session_start_info=start),
        summary(hparams_metadata.SESSION_END_INFO_TAG, session_end_info=end),
    )
