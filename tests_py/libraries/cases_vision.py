"""Cases of libraries for images: filters and geometry, segmentation, medical images, and CLIP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from measures import derived, facts, filled, spread, tokens, weighed
from torch import nn


def kornia() -> Iterator[tuple[str, Any]]:
    import kornia as k
    from kornia import augmentation as aug
    from kornia import feature as kf
    from kornia.geometry import transform as kt

    def image(channels: int = 3) -> torch.Tensor:
        return spread(2, channels, 16, 14).abs() * 0.9 + 0.05

    def filters() -> dict[str, float]:
        f = k.filters
        return derived(
            {
                "gaussian": lambda x: f.gaussian_blur2d(x, (5, 3), (1.5, 0.8)),
                "separable": lambda x: f.filter2d_separable(x, *[torch.ones(1, 3)] * 2, border_type="circular"),
                "bilateral": lambda x: f.bilateral_blur(x, 3, 0.2, (1.0, 1.0)),
                "joint": lambda x: f.joint_bilateral_blur(x, x.flip(-1), 3, 0.2, (1.0, 1.0)),
                "box": lambda x: f.box_blur(x, 3),
                "median": lambda x: f.median_blur(x, 3),
                "motion": lambda x: f.motion_blur(x, 5, 35.0, 0.5),
                "sobel": f.sobel,
                "laplacian": lambda x: f.laplacian(x, 3),
                "sharp": lambda x: f.unsharp_mask(x, (3, 3), (1.0, 1.0)),
                "gradient": lambda x: f.spatial_gradient(x, "diff", 2),
                "guided": lambda x: f.guided_blur(x, x, 3, 0.1),
                "blurpool": lambda x: f.blur_pool2d(x, 3),
                "maxblur": lambda x: f.max_blur_pool2d(x, 3),
                "canny": lambda x: f.canny(x)[0],
                "dissolve": lambda x: f.edge_aware_blur_pool2d(x, 3),
                "fft": lambda x: f.fft_conv(x, torch.ones(1, 3, 3).to(x) / 9),
                "otsu": lambda x: f.otsu_threshold(x.detach()[:, :1])[0],
            },
            image(),
        )

    def geometry() -> dict[str, float]:
        g = k.geometry
        points = torch.tensor([[[0.0, 0], [13, 0], [13, 15], [0, 15]]]).to(image()).repeat(2, 1, 1)
        moved = points + spread(2, 4, 2)
        matrix = kt.get_perspective_transform(points, moved)
        turn = kt.get_rotation_matrix2d(
            torch.tensor([[6.0, 7], [5, 5]]).to(points),
            torch.tensor([30.0, -20]).to(points),
            torch.ones(2, 2).to(points),
        )
        camera = torch.eye(3).to(points)[None] + torch.tensor([[0, 0, 0.5], [0, 0, 0.4], [0, 0, 0]]).to(points)
        a, b = spread(2, 9, 2), spread(2, 9, 2) * 0.3 + spread(2, 9, 2, phase=3.0)
        out = derived(
            {
                "perspective": lambda x: kt.warp_perspective(x, matrix, (12, 12)),
                "affine": lambda x: kt.warp_affine(x, turn, (16, 14), padding_mode="reflection"),
                "rotate": lambda x: kt.rotate(x, torch.tensor([20.0, 75.0]).to(x)),
                "hflip": kt.hflip,
                "resize": lambda x: kt.resize(x, (9, 11), antialias=True),
                "pyramid": kt.pyrdown,
                "up": kt.pyrup,
                "crop": lambda x: kt.crop_by_indices(x, points[:, :, :].round().abs().long().float().to(x)),
                "center": lambda x: kt.center_crop(x, (8, 8)),
                "shear": lambda x: kt.shear(x, spread(2, 2)),
                "elastic": lambda x: kt.elastic_transform2d(x, spread(2, 2, 16, 14), (5, 5), (2.0, 2.0)),
                "remap": lambda x: kt.remap(x, spread(2, 9, 9).abs() * 9, spread(2, 9, 9, phase=1.0).abs() * 9),
                "undistort": lambda x: g.calibration.undistort_image(x, camera.repeat(2, 1, 1) * 9, spread(2, 4) * 0.1),
            },
            image(),
        )
        quaternion = nn.functional.normalize(spread(2, 4), dim=-1)
        out |= derived(
            {
                "matrix": g.quaternion_to_rotation_matrix,
                "axis": g.quaternion_to_axis_angle,
                "log": g.quaternion_exp_to_log,
                "euler": lambda q: list(g.euler_from_quaternion(*q.unbind(-1))),
            },
            quaternion,
        )
        turned = g.axis_angle_to_rotation_matrix(spread(2, 3))
        return {
            **out,
            "back": weighed(g.rotation_matrix_to_quaternion(turned)),
            "angle": weighed(g.rotation_matrix_to_axis_angle(turned)),
            "homography": weighed(g.find_homography_dlt(a, b)),
            "fundamental": weighed(g.epipolar.find_fundamental(a, b).abs()),
            "line": weighed(g.epipolar.compute_correspond_epilines(a, turned)),
            "depth": weighed(g.depth.depth_to_3d_v2(image(1)[:, 0], camera.repeat(2, 1, 1))),
            "boxes": weighed(g.bbox.infer_bbox_shape(points)),
            "se3": weighed(g.liegroup.Se3.exp(spread(2, 6)).matrix()),
            "so3": weighed(g.liegroup.So3.exp(spread(2, 3)).log()),
            "soft": weighed(g.spatial_soft_argmax2d(image())),
            "subpix": weighed(g.conv_quad_interp3d(image()[:, None])),
        }

    def colors() -> dict[str, float]:
        names = ("hsv", "hls", "lab", "luv", "xyz", "ycbcr", "yuv", "grayscale", "linear_rgb", "yuv420")
        both = {n: (lambda x, n=n: getattr(k.color, f"rgb_to_{n}")(x)) for n in names}
        e = k.enhance
        return derived(
            {
                **both,
                "back": lambda x: k.color.lab_to_rgb(k.color.rgb_to_lab(x)),
                "sepia": k.color.sepia,
                "brightness": lambda x: e.adjust_brightness(x, 0.2),
                "contrast": lambda x: e.adjust_contrast(x, 0.7),
                "hue": lambda x: e.adjust_hue(x, 0.3),
                "saturation": lambda x: e.adjust_saturation(x, 1.4),
                "gamma": lambda x: e.adjust_gamma(x, 1.3),
                "equalize": lambda x: e.equalize(x.detach()),
                "posterize": lambda x: e.posterize(x.detach(), 3),
                "solarize": lambda x: e.solarize(x, 0.4),
                "sharp": lambda x: e.sharpness(x, 0.6),
                "zca": lambda x: e.ZCAWhitening().fit(x.detach().reshape(-1, 12))(x.reshape(-1, 12)),
                "histogram": lambda x: e.histogram(
                    x[:, 0].reshape(2, -1), torch.linspace(0, 1, 8).to(x), torch.tensor(0.1).to(x)
                ),
                "jpeg": lambda x: e.jpeg_codec_differentiable(
                    x.repeat(1, 1, 1, 2)[..., :16], torch.tensor([50.0]).to(x)
                ),
                "normalize": e.normalize_min_max,
                "integral": e.integral_image,
                "dilate": lambda x: k.morphology.dilation(x, torch.ones(3, 3).to(x)),
                "open": lambda x: k.morphology.opening(x, torch.ones(3, 3).to(x)),
                "to the edge": lambda x: k.contrib.distance_transform((x[:, :1] > 0.7).to(x)),
                "components": lambda x: k.contrib.connected_components((x[:, :1] > 0.6).to(x), 30),
                "patches": lambda x: k.contrib.extract_tensor_patches(x, 5, 3),
            },
            image(),
        )

    def losses() -> dict[str, float]:
        L, M = k.losses, k.metrics
        labels = (spread(2, 16, 14).abs() * 3).long().clamp(0, 2)
        other = spread(2, 3, 16, 14, phase=4.0).abs()
        return derived(
            {
                "dice": lambda x, y: L.dice_loss(x, labels),
                "focal": lambda x, y: L.focal_loss(x, labels, 0.5, reduction="mean"),
                "tversky": lambda x, y: L.tversky_loss(x, labels, 0.4, 0.6),
                "lovasz": lambda x, y: L.lovasz_softmax_loss(x, labels),
                "hinge": lambda x, y: L.lovasz_hinge_loss(x[:, :1], labels.clamp(0, 1)),
                "binary": lambda x, y: L.binary_focal_loss_with_logits(x, (y > 0.5).to(x), 0.3, reduction="sum"),
                "ssim": lambda x, y: L.ssim_loss(x, y, 5),
                "psnr": lambda x, y: L.psnr_loss(x, y, 1.0),
                "variation": lambda x, y: L.total_variation(x),
                "charbonnier": L.charbonnier_loss,
                "welsch": L.welsch_loss,
                "cauchy": L.cauchy_loss,
                "geman": L.geman_mcclure_loss,
                "js": lambda x, y: L.js_div_loss_2d(k.geometry.spatial_softmax2d(x), k.geometry.spatial_softmax2d(y)),
                "hausdorff": lambda x, y: L.HausdorffERLoss()(x, labels[:, None]),
                "ms_ssim": L.MS_SSIMLoss(sigmas=[0.5, 1.0, 2.0]),
                "smooth": lambda x, y: L.inverse_depth_smoothness_loss(x[:, :1], y),
                "iou": lambda x, y: M.mean_iou(x.detach().argmax(1), labels, 3),
                "ssim map": lambda x, y: M.ssim(x, y, 5),
                "confusion": lambda x, y: M.confusion_matrix(x.detach().argmax(1), labels, 3),
            },
            image(),
            other,
        )

    def features() -> dict[str, float]:
        x = image(1).repeat(1, 1, 3, 3)[..., :40, :40].contiguous()
        out = derived(
            {
                "harris": kf.harris_response,
                "gftt": kf.gftt_response,
                "hessian": kf.hessian_response,
                "sift": lambda x: kf.SIFTDescriptor(32)(x[..., :32, :32]),
                "hynet": lambda x: filled(kf.HyNet(False)).eval()(x[..., :32, :32].to(torch.get_default_dtype())),
                "hardnet": lambda x: filled(kf.HardNet(False)).eval()(x[..., :32, :32]),
            },
            x,
        )
        a, b = spread(9, 8), spread(7, 8, phase=2.0)
        distances, indices = kf.match_snn(a, b, 0.98)
        both = kf.match_mnn(a, b)
        frames = kf.laf_from_center_scale_ori(spread(1, 3, 2).abs() * 20 + 10, torch.full((1, 3, 1, 1), 6.0).to(a))
        return {
            **out,
            "snn": weighed([distances, indices]),
            "mnn": weighed(both),
            "laf": weighed(kf.ellipse_to_laf(torch.tensor([[[5.0, 6, 0.5, 0.1, 0.4]]]).to(a))),
            "patches": weighed(kf.extract_patches_from_pyramid(x[:1], frames, 8)),
        }

    def augmented() -> dict[str, float]:
        x, out = image(), {}
        fixed: dict[str, Any] = {
            "flip": aug.RandomHorizontalFlip(p=1.0),
            "affine": aug.RandomAffine((30.0, 30.0), p=1.0),
            "gray": aug.RandomGrayscale(p=1.0),
            "rotation": aug.RandomRotation((20.0, 20.0), p=1.0),
            "invert": aug.RandomInvert(p=1.0),
            "crop": aug.CenterCrop(8),
            "pad": aug.PadTo((20, 20)),
            "solarize": aug.RandomSolarize(0.1, 0.1, p=0.0),
            "normalize": aug.Normalize([0.5] * 3, [0.2] * 3),
            "blur": aug.RandomGaussianBlur((3, 3), (1.0, 1.0), p=1.0),
            "equalize": aug.RandomEqualize(p=1.0),
            "resize": aug.Resize((7, 9)),
            "posterize": aug.RandomPosterize((3.0, 3.0), p=1.0),
            "box": aug.RandomBoxBlur((3, 3), p=1.0),
        }
        for name, module in fixed.items():
            out[name] = weighed(module(x))
        both = aug.AugmentationSequential(
            aug.RandomHorizontalFlip(p=1.0),
            aug.RandomRotation((20.0, 20.0), p=1.0),
            data_keys=["input", "mask", "keypoints"],
        )
        points = spread(2, 5, 2).abs() * 10
        found = both(x, (x[:, :1] > 0.5).to(x), points)
        shapes = []
        for module in (
            aug.ColorJitter(0.1, 0.1, 0.1, 0.1),
            aug.RandomErasing(),
            aug.RandomPerspective(),
            aug.RandomCrop((8, 8)),
            aug.RandomElasticTransform(),
            aug.RandomThinPlateSpline(),
            aug.RandomResizedCrop((6, 7)),
            aug.RandomMixUpV2(),
            aug.RandomCutMixV2(),
            aug.RandomMosaic((8, 8)),
            aug.RandomPlasmaShadow(),
            aug.RandomMotionBlur(3, 30.0, 0.5),
            aug.RandomFisheye(*torch.tensor([[-0.3, 0.3]] * 3)),
            aug.RandomGaussianNoise(),
            aug.RandomChannelShuffle(),
            aug.auto.RandAugment(2, 10),
            aug.auto.TrivialAugment(),
            aug.auto.AutoAugment("cifar10"),
        ):
            made = module(x)
            shapes.append(torch.tensor((made[0] if isinstance(made, list | tuple) else made).shape))
        return {**out, "together": weighed(found), "inverse": weighed(both.inverse(*found)), "shapes": weighed(shapes)}

    def model() -> dict[str, float]:
        from kornia.models.vit import VisionTransformer

        net = VisionTransformer(image_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=2)
        images, labels = spread(2, 3, 32, 32), torch.tensor([1, 3])
        filled(net).eval()
        return facts(net, lambda: nn.functional.cross_entropy(net(images)[:, 0], labels))

    yield "filters", filters
    yield "geometry", geometry
    yield "colours and enhancement", colors
    yield "losses and metrics", losses
    yield "features", features
    yield "augmentation", augmented
    yield "VisionTransformer", model


def segmentation_models_pytorch() -> Iterator[tuple[str, Any]]:
    import segmentation_models_pytorch as smp

    images, labels = spread(2, 3, 64, 64), (spread(2, 64, 64).abs() * 3).long().clamp(0, 2)

    def segmented(name: str, encoder: str, **options: Any) -> dict[str, float]:
        model: Any = filled(smp.create_model(name, encoder, encoder_weights=None, classes=3, **options))
        for module in model.modules():
            module.train(isinstance(module, nn.BatchNorm2d))
        return facts(model, lambda: nn.functional.cross_entropy(model(images), labels))

    for name, encoder in (
        ("Unet", "resnet18"),
        ("UnetPlusPlus", "timm-mobilenetv3_small_minimal_100"),
        ("Linknet", "resnet18"),
        ("FPN", "efficientnet-b0"),
        ("PSPNet", "mobilenet_v2"),
        ("DeepLabV3Plus", "resnet18"),
        ("MAnet", "resnet18"),
        ("UPerNet", "tu-resnet10t"),
        ("Segformer", "mit_b0"),
        ("DPT", "tu-vit_tiny_patch16_224"),
    ):
        extra = {"dynamic_img_size": True} if name == "DPT" else {}
        yield name, lambda n=name, e=encoder, o=extra: segmented(n, e, **o)

    def losses() -> dict[str, float]:
        L = smp.losses
        flat = (labels[:, None] > 0).to(images)
        found = derived(
            {
                "dice": lambda x: L.DiceLoss("multiclass")(x, labels),
                "jaccard": lambda x: L.JaccardLoss("multiclass")(x, labels),
                "tversky": lambda x: L.TverskyLoss("multiclass", alpha=0.3, beta=0.7, gamma=1.3)(x, labels),
                "focal": lambda x: L.FocalLoss("multiclass", gamma=1.5)(x, labels),
                "lovasz": lambda x: L.LovaszLoss("multiclass")(x.float(), labels),
                "soft": lambda x: L.SoftCrossEntropyLoss(smooth_factor=0.1)(x, labels),
                "soft bce": lambda x: L.SoftBCEWithLogitsLoss(smooth_factor=0.1)(x[:, :1], flat),
                "mcc": lambda x: L.MCCLoss()(x[:, :1].sigmoid(), flat),
                "binary": lambda x: L.DiceLoss("binary")(x[:, :1], flat),
                "hinge": lambda x: L.LovaszLoss("binary")(x[:, :1].float(), flat.float()),
            },
            images,
        )
        counts = smp.metrics.get_stats(images.argmax(1), labels, mode="multiclass", num_classes=3)
        scores = {
            n: float(getattr(smp.metrics, n)(*counts, reduction="macro"))
            for n in ("iou_score", "f1_score", "accuracy", "recall")
        }
        return {**found, **scores}

    yield "losses and metrics", losses


def open_clip() -> Iterator[tuple[str, Any]]:
    import open_clip as oc

    vision: dict[str, Any] = {"image_size": 32, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16}
    text: dict[str, Any] = {"context_length": 16, "vocab_size": 90, "width": 32, "heads": 2, "layers": 2}

    def compared(
        make: Any = None, vision: dict[str, Any] = vision, text: dict[str, Any] = text, **more: Any
    ) -> dict[str, float]:
        model: Any = filled((make or oc.CLIP)(24, vision, text, **more)).eval()
        images, words, loss = spread(4, 3, 32, 32), tokens(4, 16, 90), oc.ClipLoss()
        out = facts(model, lambda: loss(*model(images, words)[:2], 10.0))
        return {**out, "logits": weighed(model.get_logits(images, words)) if hasattr(model, "get_logits") else 0.0}

    def captioned() -> dict[str, float]:
        model: Any = oc.CoCa(
            32,
            text,
            {**text, "embed_cls": True, "output_tokens": True, "context_length": 15},
            {**vision, "attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True},
        )
        filled(model).eval()
        images, words = spread(4, 3, 32, 32), tokens(4, 15, 90)
        loss = oc.loss.CoCaLoss(caption_loss_weight=2.0, clip_loss_weight=1.0, pad_id=0)

        def total() -> torch.Tensor:
            made = model(images, words)
            return sum(
                loss(
                    made["image_features"],
                    made["text_features"],
                    made["logits"],
                    made.get("labels", words[:, 1:]),
                    made["logit_scale"],
                )
            )

        return facts(model, total)

    def losses() -> dict[str, float]:
        a, b = nn.functional.normalize(spread(6, 8), dim=-1), nn.functional.normalize(spread(6, 8, phase=1.0), dim=-1)
        scale, bias = torch.tensor(10.0).to(a), torch.tensor(-10.0).to(a)
        return derived(
            {
                "clip": lambda x, y: oc.ClipLoss()(x, y, scale),
                "siglip": lambda x, y: oc.loss.SigLipLoss()(x, y, scale, bias),
                "distilled": lambda x, y: oc.loss.DistillClipLoss()(x, y, scale, y, x, scale)[1],
            },
            a,
            b,
        )

    def preprocessed() -> dict[str, float]:
        from PIL import Image

        pixels = Image.fromarray((spread(40, 50, 3).abs() * 255).byte().numpy())
        out = {"image": weighed(oc.image_transform(32, is_train=False)(pixels))}
        tokenizer: Any = oc.SimpleTokenizer()
        out["tokens"] = weighed(tokenizer(["a photo of a cat", "two dogs"]))
        return out

    yield "CLIP with ViT", compared
    yield "CLIP with ResNet", lambda: compared(vision={"image_size": 32, "layers": [1, 1, 1, 1], "width": 8})
    yield (
        "CustomTextCLIP",
        lambda: compared(
            oc.CustomTextCLIP, {**vision, "pool_type": "avg", "ls_init_value": 0.1}, {**text, "pool_type": "last"}
        ),
    )
    yield "CoCa", captioned
    yield "losses", losses
    yield "preprocessing", preprocessed


LIBRARIES = (kornia, open_clip, segmentation_models_pytorch)
