"""`SummaryWriter`, which writes what a program measures to event files."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from plait.utils.tensorboard import _embedding, summary

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """Writes summaries to an event file in a folder, by a thread.

    Args:
        log_dir: the folder
        max_queue: how many may wait to be written
        flush_secs: seconds after which the file is flushed
        filename_suffix: of the file's name
    """

    def __init__(
        self, log_dir: str | os.PathLike[str], max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = ""
    ) -> None:
        self._settings = (os.fspath(log_dir), max_queue, flush_secs, filename_suffix)
        self.event_writer = EventFileWriter(*self._settings)

    def get_logdir(self) -> str:
        """Returns the folder."""
        return self.event_writer.get_logdir()

    def add_event(self, event: Any, step: Any = None, walltime: float | None = None) -> None:
        """Adds an event, at a step and a time, the present one by default."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """Adds a summary."""
        self.add_event(event_pb2.Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        """Writes what waits."""
        self.event_writer.flush()

    def close(self) -> None:
        """Writes what waits, and closes the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Opens another file in the folder, after `close`."""
        self.event_writer = EventFileWriter(*self._settings)


class SummaryWriter:
    """Writes what a program measures to event files, which `tensorboard --logdir runs` shows.

    `tag` is a name, by which TensorBoard groups what is before a slash; `global_step` the step, and `walltime` the
    time of the event, the present one by default.

    Args:
        log_dir: the folder; by default a new one in `runs`, of the present time and this machine's name
        comment: the end of that name
        purge_step: the step from which on what an earlier program wrote to the folder is to be hidden
        max_queue: how many events may wait to be written
        flush_secs: seconds after which the file is flushed
        filename_suffix: of the files' names
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self.purge_step = purge_step
        self.max_queue = max_queue
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """Returns the writer of the folder, a new one after `close`."""
        if self.all_writers is None or self.file_writer is None:
            self.file_writer = self._open(self.log_dir)
            self.all_writers = {self.log_dir: self.file_writer}
            if self.purge_step is not None:
                self.file_writer.add_event(event_pb2.Event(file_version="brain.Event:2"), self.purge_step)
                start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                self.file_writer.add_event(event_pb2.Event(session_log=start), self.purge_step)
                self.purge_step = None
        return self.file_writer

    def _open(self, folder: str) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def _add(self, what: Any, step: Any, walltime: float | None) -> None:
        self._get_file_writer().add_summary(what, step, walltime)

    def get_logdir(self) -> str:
        """Returns the folder."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: Any = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Adds a number: a Python number, or a tensor of one element, for which it waits.

        Args:
            tag, global_step, walltime: as the class says
            scalar_value: the number
            new_style: whether to write a tensor, which TensorBoard reads faster
            double_precision: whether to write a float64
        """
        self._add(summary.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Any = None, walltime: float | None = None
    ) -> None:
        """Adds numbers that one chart shows together. Each has a file in a folder of its own."""
        walltime = time.time() if walltime is None else walltime
        folder = os.path.join(self._get_file_writer().get_logdir(), main_tag.replace("/", "_"))
        assert self.all_writers is not None
        for tag, value in tag_scalar_dict.items():
            path = f"{folder}_{tag}"
            if path not in self.all_writers:
                self.all_writers[path] = self._open(path)
            self.all_writers[path].add_summary(summary.scalar(main_tag, value), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: Any = None, walltime: float | None = None) -> None:
        """Adds a tensor's elements."""
        self._add(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Any = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Adds a histogram of values.

        Args:
            tag, global_step, walltime: as the class says
            values: a tensor or array
            bins: "tensorflow", whose bins grow with their distance from zero, or what `numpy.histogram` takes
            max_bins: above how many bins neighbours are joined

        Raises:
            ValueError: for no values.
        """
        self._add(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: float,
        sum: float,
        sum_squares: float,
        bucket_limits: Sequence[float],
        bucket_counts: Sequence[float],
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a histogram that has been made, of buckets with these upper limits."""
        made = summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._add(made, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Adds an image of 1, 3 or 4 channels: bytes, or floats from 0 to 1.

        Args:
            tag, global_step, walltime: as the class says
            img_tensor: the image
            dataformats: its dimensions: "CHW", "HWC" or "HW"
        """
        self._add(summary.image(tag, summary.as_pixels(img_tensor, dataformats, "add_image")), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Adds images as a grid with eight in a row; `dataformats` is "NCHW", "NHWC", or that of one image."""
        self._add(summary.image(tag, summary.as_pixels(img_tensor, dataformats, "add_images")), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: Any = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Sequence[str] | None = None,
    ) -> None:
        """Adds an image with rectangles, of shape (number, 4): left, top, right and bottom, perhaps with labels."""
        if labels is not None and len(labels) != len(box_tensor):
            raise ValueError(f"add_image_with_boxes: {len(labels)} labels for {len(box_tensor)} boxes")
        pixels = summary.as_pixels(img_tensor, dataformats, "add_image_with_boxes")
        self._add(summary.image(tag, summary.with_boxes(pixels, box_tensor, labels, rescale)), global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: Any = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """Adds a figure of matplotlib's, or a list of them as a grid, and closes it unless `close` is False."""
        self.add_images(tag, summary.figures(figure), global_step, walltime, "NHWC")
        if close:
            from matplotlib import pyplot as plt

            for f in figure if isinstance(figure, Sequence) else [figure]:
                plt.close(f)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: Any = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Adds a sound of one channel, with values from -1 to 1."""
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: float | None = None) -> None:
        """Adds a text in Markdown."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None,
        run_name: str | None = None,
        global_step: Any = None,
    ) -> None:
        """Adds a run's hyperparameters and what it reached, which TensorBoard compares between runs.

        Args:
            hparam_dict: bools, numbers or strings, by name
            metric_dict: numbers, by tags that `add_scalar` gets too
            hparam_domain_discrete: the values that a hyperparameter may have
            run_name: of the folder in the writer's; by default the time
            global_step: the step of the metrics
        """
        parts = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(folder) as run:
            for part in parts:
                run._add(part, None, None)
            for tag, value in metric_dict.items():
                run.add_scalar(tag, value, global_step)

    def add_embedding(
        self,
        mat: Any,
        metadata: Sequence[Any] | None = None,
        label_img: Any = None,
        global_step: Any = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Adds vectors, which TensorBoard's projector shows.

        Args:
            mat: the vectors, a row each
            metadata: of each, its label; or, with `metadata_header`, a sequence of labels
            label_img: of each, its picture: a tensor of shape (number, channels, height, width)
            global_step, tag: what the vectors' folder is called by
            metadata_header: the labels' names
        """
        name = f"{int(global_step or 0):05d}/{tag}"
        _embedding.write(Path(self._get_file_writer().get_logdir()), name, mat, metadata, metadata_header, label_img)

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a curve of precision and recall, of labels, true or false, and predicted probabilities."""
        self._add(summary.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: Any = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds a curve that has been computed, at `num_thresholds` thresholds; `weights` has no effect."""
        counts = (true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts)
        self._add(summary.pr_curve_raw(tag, *counts, precision, recall, num_thresholds), global_step, walltime)

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Adds a chart with the scalars of several tags."""
        self.add_custom_scalars({category: {title: ("Multiline", tags)}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Adds a chart of a scalar with its lower and upper bounds: three tags."""
        if len(tags) != 3:
            raise ValueError(f"add_custom_scalars_marginchart: want three tags, got {len(tags)}")
        self.add_custom_scalars({category: {title: ("Margin", tags)}})

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, tuple[str, Sequence[str]]]]) -> None:
        """Adds charts: by category and title, the kind, "Multiline" or "Margin", and tags."""
        self._add(summary.custom_scalars(layout), None, None)

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Mapping[str, Any] | None = None,
        global_step: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Adds meshes or clouds of points: vertices, colours and faces, each of shape (number, points, 3)."""
        self._add(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> NoReturn:
        """Raises NotImplementedError: TensorBoard's graphs are of another engine's operations."""
        raise NotImplementedError("add_graph: models are not traced, so there is no graph to show")

    def add_onnx_graph(self, prototxt: Any) -> NoReturn:
        """Raises NotImplementedError: TensorBoard's graphs are of another engine's operations."""
        raise NotImplementedError("add_onnx_graph: TensorBoard does not read ONNX; Netron shows such files")

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: Any = None, fps: float = 4, walltime: float | None = None
    ) -> NoReturn:
        """Raises NotImplementedError: videos would need an encoder."""
        raise NotImplementedError("add_video: there is no encoder of videos; add_images shows frames")

    def flush(self) -> None:
        """Writes what waits to the files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Writes what waits and closes the files. A later call that adds something opens new ones."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
