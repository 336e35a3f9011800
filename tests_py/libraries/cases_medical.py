"""Cases of monai: networks for volumes, losses, transforms, metrics and loops for medical images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from measures import NORMS, derived, facts, filled, spread, weighed


def monai() -> Iterator[tuple[str, Any]]:
    import monai
    from monai import data, inferers, losses, metrics, transforms
    from monai.networks import nets

    volume = spread(2, 3, 8, 8, 8)
    labels = (spread(2, 1, 8, 8, 8).abs() * 3).long().clamp(0, 2)
    image = spread(1, 12, 10, 8)

    def classes() -> torch.Tensor:
        return torch.nn.functional.one_hot(labels[:, 0], 3).permute(0, 4, 1, 2, 3).to(volume)

    def segmented(model: Any, *shape: int, **options: Any) -> dict[str, float]:
        filled(model).eval()
        for module in model.modules():
            module.train(isinstance(module, NORMS))
        x = spread(*shape)

        def loss() -> torch.Tensor:
            made = model(x, **options)
            return (made[0] if isinstance(made, list | tuple) else made).square().mean()

        return facts(model, loss)

    yield "UNet", lambda: segmented(nets.UNet(3, 1, 2, (4, 8, 16), (2, 2), num_res_units=1), 1, 1, 16, 16, 16)
    yield (
        "SegResNet",
        lambda: segmented(
            nets.SegResNet(
                3, 8, 1, 2, blocks_down=(1, 1), blocks_up=(1,), norm=("GROUP", {"num_groups": 4})
            ), 1, 1, 16, 16, 16,
        ),
    )  # fmt: skip
    yield (
        "UNETR",
        lambda: segmented(
            nets.UNETR(
                1, 2, (32, 32), feature_size=4, hidden_size=24, mlp_dim=32, num_heads=2, spatial_dims=2
            ), 1, 1, 32, 32,
        ),
    )  # fmt: skip
    yield (
        "SwinUNETR",
        lambda: segmented(
            nets.SwinUNETR(
                1, 2, feature_size=12, spatial_dims=2, depths=(1, 1, 1, 1), num_heads=(1, 1, 1, 1)
            ), 1, 1, 64, 64,
        ),
    )  # fmt: skip
    yield "BasicUNet", lambda: segmented(nets.BasicUNet(2, 1, 2, (4, 4, 8, 8, 8, 4)), 1, 1, 32, 32)
    yield "DenseNet", lambda: segmented(nets.DenseNet(3, 1, 2, 4, 4, (2, 2), 2), 2, 1, 16, 16, 16)
    yield (
        "DiffusionModelUNet",
        lambda: segmented(
            nets.DiffusionModelUNet(
                2, 1, 1, (1, 1), (8, 8), (False, True), norm_num_groups=4, num_head_channels=4
            ), 2, 1, 16, 16, timesteps=torch.tensor([1, 5]),
        ),
    )  # fmt: skip
    yield "VoxelMorphUNet", lambda: segmented(nets.VoxelMorphUNet(3, 2, 8, (4, 4), (4, 4)), 1, 2, 16, 16, 16)

    def lost() -> dict[str, float]:
        both: dict[str, Any] = {"to_onehot_y": True, "softmax": True}
        weights = np.array([[0, 1, 1], [1, 0, 0.5], [1, 0.5, 0]])
        against = classes()
        return derived(
            {
                "dice": lambda x: losses.DiceCELoss(**both)(x, labels),
                "generalized": lambda x: losses.GeneralizedDiceLoss(**both)(x, labels),
                "wasserstein": lambda x: losses.GeneralizedWassersteinDiceLoss(weights, "default")(x, labels[:, 0]),
                "focal": lambda x: losses.FocalLoss(to_onehot_y=True, use_softmax=True, alpha=0.3)(x, labels),
                "tversky": lambda x: losses.TverskyLoss(**both)(x, labels),
                "hausdorff": lambda x: losses.LogHausdorffDTLoss(**both)(x, labels),
                "correlation": lambda x: losses.LocalNormalizedCrossCorrelationLoss(3, kernel_size=3)(
                    x[:, :1], against[:, :1]
                ),
                "information": lambda x: losses.GlobalMutualInformationLoss(num_bins=8)(
                    x[:, :1].sigmoid(), against[:, :1]
                ),
                "bending": losses.BendingEnergyLoss(), "diffusion": losses.DiffusionLoss(),
                "unified": lambda x: losses.AsymmetricUnifiedFocalLoss()(x[:, :2].sigmoid(), against[:, :2]),
            }, volume,
        )  # fmt: skip

    def transformed() -> dict[str, float]:
        t = transforms
        affine = monai.data.MetaTensor(image, affine=torch.eye(4))
        found: dict[str, Any] = {
            "spacing": t.Spacing((2.0, 1.5, 1.0))(affine), "resize": t.Resize((6, 7, 8), mode="trilinear")(image),
            "rotate": t.Rotate((0.2, 0.3, 0.1))(image), "zoom": t.Zoom(0.7)(image),
            "range": t.ScaleIntensityRange(-1, 1, 0, 1, clip=True)(image),
            "percentiles": t.ScaleIntensityRangePercentiles(5, 95, 0, 1)(image),
            "crop": t.CropForeground()(image.clamp(min=0)), "smooth": t.GaussianSmooth(1.0)(image),
            "discrete": t.AsDiscrete(argmax=True, to_onehot=3)(volume[0]),
            "noise": t.RandGaussianNoise(1.0).set_random_state(3)(image),
            "affine": t.RandAffine(1.0, rotate_range=0.3).set_random_state(3)(image),
            "elastic": t.Rand3DElastic((1, 2), (1, 2), prob=1.0).set_random_state(2)(image),
        }  # fmt: skip
        crops = t.RandCropByPosNegLabel((4, 4, 4), label=labels[0], num_samples=3).set_random_state(0)(volume[0])
        turned = t.Compose([t.Flip(0), t.SpatialPad((14, 14, 14))])
        return {
            **{k: weighed(v.as_tensor()) for k, v in found.items()}, "crops": weighed([c.as_tensor() for c in crops]),
            "inverse": weighed(turned.inverse(turned(image)).as_tensor()), "where": weighed(found["spacing"].affine),
        }  # fmt: skip

    def measured() -> dict[str, float]:
        guess, truth = classes(), classes().roll(1, 2)
        kinds = {
            "dice": metrics.DiceMetric(), "hausdorff": metrics.HausdorffDistanceMetric(), "iou": metrics.MeanIoU(),
            "surface": metrics.SurfaceDistanceMetric(), "confusion": metrics.ConfusionMatrixMetric(),
        }  # fmt: skip
        return {k: weighed(torch.nan_to_num(torch.as_tensor(m(guess, truth)))) for k, m in kinds.items()}

    def fed() -> dict[str, float]:
        made = transforms.Compose([transforms.EnsureTyped("image"), transforms.ScaleIntensityd("image")])
        rows = [{"image": image.numpy() * (i + 1), "label": i} for i in range(4)]
        out = {}
        for i, batch in enumerate(data.DataLoader(data.CacheDataset(rows, made, progress=False), batch_size=2)):
            out[f"image {i}"], out[f"label {i}"] = weighed(batch["image"].as_tensor()), weighed(batch["label"])
            out[f"parts {i}"] = float(len(data.decollate_batch(batch)))
        window = inferers.sliding_window_inference(
            spread(1, 1, 20, 20), (8, 8), 2, torch.tanh, overlap=0.5, mode="gaussian"
        )
        return {**out, "window": weighed(window)}

    yield "losses", lost
    yield "transforms", transformed
    yield "metrics", measured
    yield "loaders and sliding windows", fed


LIBRARIES = (monai,)
