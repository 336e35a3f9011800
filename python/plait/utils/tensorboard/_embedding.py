"""The files of TensorBoard's projector, which shows vectors in space."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from tensorboard.plugins.projector.projector_config_pb2 import EmbeddingInfo, ProjectorConfig

from plait.utils.tensorboard.summary import as_array, as_pixels, encoded

_CONFIG = "projector_config.pbtxt"


def write(
    logdir: Path, name: str, mat: Any, metadata: Sequence[Any] | None, header: Sequence[str] | None, images: Any
) -> None:
    """Writes vectors, and adds them to the projector's configuration.

    Args:
        logdir: the writer's folder
        name: of the vectors, and of their folder in it
        mat: the vectors, a row each
        metadata: of each, its label; or, with a header, its labels
        header: the labels' names
        images: of each, its picture, of shape (number, channels, height, width)
    """
    vectors = as_array(mat)
    if vectors.ndim != 2:
        raise ValueError(f"add_embedding: want vectors in the rows of a matrix, got shape {vectors.shape}")
    folder = logdir / name
    folder.mkdir(parents=True, exist_ok=True)
    info = EmbeddingInfo(tensor_name=name, tensor_path=f"{name}/tensors.tsv")
    lines = ["\t".join(map(repr, row)) for row in vectors.tolist()]
    (folder / "tensors.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    if metadata is not None:
        if len(metadata) != len(vectors):
            raise ValueError(f"add_embedding: {len(metadata)} labels for {len(vectors)} vectors")
        rows = [header, *metadata] if header else list(metadata)
        text = ["\t".join(map(str, r)) if header else str(r) for r in rows]
        (folder / "metadata.tsv").write_text("\n".join(text) + "\n", "utf-8")
        info.metadata_path = f"{name}/metadata.tsv"
    if images is not None:
        pictures = as_array(images)
        if len(pictures) != len(vectors):
            raise ValueError(f"add_embedding: {len(pictures)} pictures for {len(vectors)} vectors")
        info.sprite.image_path = f"{name}/sprite.png"
        info.sprite.single_image_dim.extend([pictures.shape[3], pictures.shape[2]])
        (folder / "sprite.png").write_bytes(encoded(_sprite(pictures)))
    config, path = ProjectorConfig(), logdir / _CONFIG
    if path.exists():
        text_format.Parse(path.read_text("utf-8"), config)
    others = [e for e in config.embeddings if e.tensor_name != name]
    path.write_text(text_format.MessageToString(ProjectorConfig(embeddings=[*others, info])), "utf-8")


def _sprite(pictures: np.ndarray) -> np.ndarray:
    """Returns one square picture of all, row by row."""
    side = int(np.ceil(np.sqrt(len(pictures))))
    rows = [
        np.concatenate([as_pixels(p, "CHW", "add_embedding") for p in pictures[i : i + side]], 1)
        for i in range(0, len(pictures), side)
    ]
    rows[-1] = np.pad(rows[-1], ((0, 0), (0, rows[0].shape[1] - rows[-1].shape[1]), (0, 0)))
    square = np.concatenate(rows, 0)
    return np.pad(
        square, ((0, square.shape[1] * pictures.shape[2] // pictures.shape[3] - square.shape[0]), (0, 0), (0, 0))
    )
