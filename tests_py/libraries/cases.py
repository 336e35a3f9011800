"""Trains models of libraries for one step and prints the numbers: `python cases.py DTYPE LIBRARY [CASE]...`.

It runs with PyTorch and behind `plait.torch`, in float32 and in float64. Parameters and inputs are the same everywhere,
which random numbers are not; `float32+3` makes them larger by three roundings, which shows how far rounding carries.
A case prints its loss, the norm of all gradients, the mean size of the parameters and of the buffers after one step of
SGD whose gradients are clipped, and the loss then.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import cases_geometry
import cases_medical
import cases_training
import cases_vision
import torch
from cases_science import SCIENCE
from measures import LARGER, classified, facts, filled, size_of, small, spread, tokens, trained
from torch import nn


def einops() -> Iterator[tuple[str, Any]]:
    from einops import rearrange, reduce, repeat
    from einops.layers.torch import Rearrange, Reduce

    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4)
            self.layer = nn.Linear(48, 8)
            self.pool = Reduce("b n d -> b d", "mean")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = rearrange(self.layer(self.cut(x)), "b n (h d) -> (b h) n d", h=2)
            y = y + repeat(reduce(y, "b n d -> b d", "max"), "b d -> b n d", n=y.shape[1])
            return self.pool(rearrange(y, "(b h) n d -> b n (h d)", h=2))

    yield "layers and functions", lambda: classified(Patches(), 16)


def timm() -> Iterator[tuple[str, Any]]:
    import timm

    options = {
        "mixer_s32_224": {"img_size": 64}, "gmlp_ti16_224": {"img_size": 64}, "vit_tiny_patch16_224": {"img_size": 64},
        "swin_tiny_patch4_window7_224": {"img_size": 64, "window_size": 2}, "cait_xxs24_224": {"img_size": 64},
        "coat_tiny": {"img_size": 64}, "convit_tiny": {"img_size": 64}, "levit_128s": {"img_size": 64},
        "pit_ti_224": {"img_size": 64}, "xcit_nano_12_p8_224": {"img_size": 64},
        "efficientformerv2_s0": {"img_size": 64}, "test_vit_relpos": {"img_size": 64}, "test_coatnet": {"img_size": 64},
    }  # fmt: skip
    for name in (
        *options, "resnet18", "convnext_atto", "efficientnet_b0", "mobilenetv3_small_050", "regnetx_002", "pvt_v2_b0",
        "poolformer_s12", "edgenext_xx_small", "ghostnet_050", "repvgg_a0", "test_nfnet", "test_mambaout",
        "starnet_s050", "dla46x_c", "dpn48b", "densenet121", "resnest14d", "mobilevit_xxs", "repghostnet_050",
        "ese_vovnet19b_slim_dw", "efficientvit_b0", "cspnext_tiny", "iformer_t", "fasternet_t0",
        "cs3darknet_focus_s", "lcnetv2_small", "swiftformer_xs", "inception_next_atto", "fastvit_t8", "rexnet_100",
        "mobileone_s1", "hgnetv2_b0", "repvit_m1",
    ):  # fmt: skip
        yield name, lambda n=name: classified(timm.create_model(n, num_classes=5, **options.get(n, {})), 64)

    def features() -> dict[str, float]:
        model = filled(timm.create_model("regnetx_002", features_only=True, feature_cls="fx", out_indices=(1, 3)))
        images = spread(4, 3, 64, 64)
        return facts(model.train(), lambda: sum(f.square().mean() for f in model(images)))

    yield "features of a graph", features


def torchvision() -> Iterator[tuple[str, Any]]:
    from torchvision import models, ops
    from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names
    from torchvision.transforms import v2

    def features() -> dict[str, float]:
        model = create_feature_extractor(filled(models.resnet18()), {"layer2.0.add": "a", "layer4": "b"})
        images = spread(4, 3, 64, 64)
        found = facts(model.train(), lambda: sum(f.square().mean() for f in model(images).values()))
        names = get_graph_node_names(models.swin_t())  # tracing looks into its functions
        return {**found, "nodes": sum(map(len, names)), "letters": sum(len(n) for ns in names for n in ns)}

    for name in (
        "alexnet", "resnet18", "squeezenet1_1", "densenet121", "googlenet", "shufflenet_v2_x0_5", "mobilenet_v3_small",
        "mnasnet0_5", "regnet_y_400mf", "efficientnet_b0", "swin_t",
    ):  # fmt: skip
        extra = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
        yield name, lambda n=name, e=extra: classified(getattr(models, n)(num_classes=5, **e), 64)
    yield "create_feature_extractor", features
    yield "vit_b_16", lambda: classified(models.VisionTransformer(64, 16, 2, 2, 32, 64, num_classes=5), 64)

    def boxes() -> dict[str, float]:
        a = torch.tensor([[0.0, 0.0, 4.0, 4.0], [1.0, 1.0, 3.0, 5.0]])
        b = torch.tensor([[2.0, 2.0, 6.0, 6.0], [0.0, 1.0, 3.0, 4.0]])
        return {
            "iou": float(ops.box_iou(a, b).sum()),
            "generalized": float(ops.generalized_box_iou(a, b).sum()),
            "focal": float(
                ops.sigmoid_focal_loss(spread(4, 3), (spread(4, 3, phase=1.0) > 0).float(), reduction="sum")
            ),
        }

    def transformed() -> dict[str, float]:
        image = spread(3, 12, 10).abs()
        out = {
            "resize": v2.Resize((7, 9), antialias=True)(image), "crop": v2.CenterCrop(6)(image),
            "normalize": v2.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])(image), "gray": v2.Grayscale()(image),
            "flip": v2.functional.horizontal_flip(image) * spread(3, 12, 10), "pad": v2.Pad(2, fill=0.5)(image),
        }  # fmt: skip
        return {k: float(v.double().sum()) for k, v in out.items()}

    yield "boxes and losses", boxes
    yield "transforms", transformed


def vit_pytorch() -> Iterator[tuple[str, Any]]:
    from vit_pytorch import SimpleViT, ViT
    from vit_pytorch.cait import CaiT
    from vit_pytorch.cct import CCT
    from vit_pytorch.deepvit import DeepViT
    from vit_pytorch.pit import PiT

    size = {"dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64, "num_classes": 5, "image_size": 32, "patch_size": 8}
    yield "ViT", lambda: classified(ViT(**size), 32)
    yield "SimpleViT", lambda: classified(SimpleViT(**size), 32)
    yield "DeepViT", lambda: classified(DeepViT(**size), 32)
    yield "CaiT", lambda: classified(CaiT(**size, cls_depth=1), 32)
    yield "PiT", lambda: classified(PiT(**{**size, "depth": (1, 1)}), 32)
    yield "CCT", lambda: classified(
        CCT(img_size=32, embedding_dim=32, n_conv_layers=1, kernel_size=7, stride=2, padding=3, pooling_kernel_size=3,
            pooling_stride=2, pooling_padding=1, num_layers=2, num_heads=2, mlp_ratio=2.0, num_classes=5,
            positional_embedding="learnable"), 32
    )  # fmt: skip


def transformers() -> Iterator[tuple[str, Any]]:
    import transformers as hf

    small = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 32, "intermediate_size": 48}

    def language(model: Any) -> dict[str, float]:
        filled(model).eval()
        ids = tokens(2, 12, 90)
        out = facts(model, lambda: model(input_ids=ids, labels=ids).loss)
        made = model.generate(ids[:, :4], max_new_tokens=6, do_sample=False, pad_token_id=0)
        return {**out, "generated": float((made * torch.arange(1, made.shape[1] + 1)).sum())}

    yield (
        "GPT-2",
        lambda: language(
            hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=90, n_positions=32, n_embd=32, n_layer=2, n_head=2))
        ),
    )
    yield (
        "Llama",
        lambda: language(
            hf.LlamaForCausalLM(
                hf.LlamaConfig(vocab_size=90, num_key_value_heads=1, max_position_embeddings=32, **small)
            )
        ),
    )
    yield (
        "Qwen2",
        lambda: language(
            hf.Qwen2ForCausalLM(
                hf.Qwen2Config(vocab_size=90, num_key_value_heads=1, max_position_embeddings=32, **small)
            )
        ),
    )

    def masked() -> dict[str, float]:
        model: Any = filled(
            hf.BertForMaskedLM(hf.BertConfig(vocab_size=90, max_position_embeddings=32, **small))
        ).eval()
        ids, mask = tokens(2, 12, 90), torch.ones(2, 12, dtype=torch.int64)
        mask[1, 8:] = 0
        return facts(model, lambda: model(input_ids=ids, attention_mask=mask, labels=ids).loss)

    def images() -> dict[str, float]:
        config = hf.ViTConfig(image_size=32, patch_size=8, num_labels=5, **small)
        model: Any = filled(hf.ViTForImageClassification(config)).eval()
        pixels, labels = spread(2, 3, 32, 32), torch.tensor([1, 3])
        return facts(model, lambda: model(pixel_values=pixels, labels=labels).loss)

    def sequences() -> dict[str, float]:
        config = hf.T5Config(
            vocab_size=90, d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2, decoder_start_token_id=0
        )
        model: Any = filled(hf.T5ForConditionalGeneration(config)).eval()
        ids = tokens(2, 12, 90)
        return facts(model, lambda: model(input_ids=ids, labels=ids[:, :7].contiguous()).loss)

    def speech() -> dict[str, float]:
        config = hf.WhisperConfig(
            vocab_size=90, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=16,
            max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        )  # fmt: skip
        model: Any = filled(hf.WhisperForConditionalGeneration(config)).eval()
        sound, ids = spread(2, 8, 32), tokens(2, 9, 90)
        return facts(model, lambda: model(input_features=sound, labels=ids).loss)

    def looped() -> dict[str, float]:
        config = hf.GPT2Config(
            vocab_size=90, n_positions=32, n_embd=32, n_layer=2, n_head=2,
            attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
        )  # fmt: skip
        model: Any = filled(hf.GPT2LMHeadModel(config))
        ids = tokens(16, 12, 90)

        class InOrder(hf.Trainer):
            def _get_train_sampler(self, *args: Any) -> Any:
                return torch.utils.data.SequentialSampler(self.train_dataset)

        with tempfile.TemporaryDirectory() as folder:
            arguments = hf.TrainingArguments(
                folder, max_steps=4, per_device_train_batch_size=4, gradient_accumulation_steps=2, learning_rate=0.01,
                warmup_steps=1, logging_steps=1, save_steps=2, report_to=[], use_cpu=True, disable_tqdm=True,
            )  # fmt: skip
            data: Any = [{"input_ids": row, "labels": row} for row in ids]
            trainer = InOrder(model, arguments, train_dataset=data, eval_dataset=data)
            trainer.remove_callback(hf.PrinterCallback)
            trainer.train()
            losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
            out = {"loss": losses[0], "after": losses[-1], "evaluated": trainer.evaluate()["eval_loss"]}
            again = InOrder(hf.GPT2LMHeadModel.from_pretrained(f"{folder}/checkpoint-2"), arguments, train_dataset=data)
            again.remove_callback(hf.PrinterCallback)
            again.train(resume_from_checkpoint=f"{folder}/checkpoint-2")
            return {**out, "resumed": [e["loss"] for e in again.state.log_history if "loss" in e][-1]}

    yield "Trainer", looped
    yield "BERT", masked
    yield "ViT", images
    yield "T5", sequences
    yield "Whisper", speech


def peft() -> Iterator[tuple[str, Any]]:
    import peft
    import transformers as hf

    def adapted(config: Any, merged: bool = False) -> dict[str, float]:
        small = hf.LlamaConfig(
            vocab_size=90, num_key_value_heads=1, max_position_embeddings=32, num_hidden_layers=2,
            num_attention_heads=2, hidden_size=32, intermediate_size=48,
        )  # fmt: skip
        model: Any = peft.get_peft_model(hf.LlamaForCausalLM(small), config)
        filled(model).eval()
        ids = tokens(2, 12, 90)
        out = facts(model, lambda: model(input_ids=ids, labels=ids).loss)
        if merged:
            out["merged"] = float(model.merge_and_unload()(input_ids=ids, labels=ids).loss)
        return out

    into: dict[str, Any] = {"task_type": "CAUSAL_LM", "target_modules": ["q_proj", "v_proj"]}
    ahead: dict[str, Any] = {"task_type": "CAUSAL_LM", "num_virtual_tokens": 3}
    yield "LoRA", lambda: adapted(peft.LoraConfig(r=4, **into), merged=True)
    yield "DoRA", lambda: adapted(peft.LoraConfig(r=4, use_dora=True, **into), merged=True)
    yield "LoHa", lambda: adapted(peft.LoHaConfig(r=4, **into))
    yield "IA3", lambda: adapted(peft.IA3Config(feedforward_modules=[], **into), merged=True)
    yield "prompt tuning", lambda: adapted(peft.PromptTuningConfig(**ahead))
    yield "prefix tuning", lambda: adapted(peft.PrefixTuningConfig(**ahead))


def torchmetrics() -> Iterator[tuple[str, Any]]:
    import torchmetrics as tm
    from torchmetrics.functional import cosine_similarity, spearman_corrcoef

    def measured() -> dict[str, float]:
        scores, labels = spread(20, 4).softmax(1), tokens(1, 20, 4)[0]
        guess, truth = spread(30), spread(30, phase=0.4)
        metrics = {
            "accuracy": tm.Accuracy("multiclass", num_classes=4), "f1": tm.F1Score("multiclass", num_classes=4),
            "auroc": tm.AUROC("multiclass", num_classes=4), "ece": tm.CalibrationError("multiclass", num_classes=4),
            "confusion": tm.ConfusionMatrix("multiclass", num_classes=4),
        }  # fmt: skip
        out = {}
        for name, metric in metrics.items():
            for half in range(2):
                metric.update(scores[half * 10 : half * 10 + 10], labels[half * 10 : half * 10 + 10])
            value = metric.compute().double()
            out[name] = float((value * torch.arange(1, value.numel() + 1).reshape(value.shape)).sum())
        for name, made in {"mse": tm.MeanSquaredError(), "r2": tm.R2Score(), "pearson": tm.PearsonCorrCoef()}.items():
            out[name] = float(made(guess, truth))
        out["spearman"] = float(spearman_corrcoef(guess, truth))
        out["cosine"] = float(cosine_similarity(guess[None], truth[None]))
        return out

    yield "metrics", measured


def x_transformers() -> Iterator[tuple[str, Any]]:
    from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper, ViTransformerWrapper

    def language(**options: Any) -> dict[str, float]:
        layers = Decoder(dim=32, depth=2, heads=2, attn_dim_head=32, **options)
        model: Any = filled(TransformerWrapper(num_tokens=90, max_seq_len=32, attn_layers=layers)).eval()
        wrapped, ids = AutoregressiveWrapper(model), tokens(2, 13, 90)
        out = facts(model, lambda: wrapped(ids))
        made = wrapped.generate(ids[:, :4], 6, temperature=0.0)
        return {**out, "generated": float((made * torch.arange(1, made.shape[1] + 1)).sum())}

    def images() -> dict[str, float]:
        layers = Encoder(dim=32, depth=2, heads=2, attn_dim_head=32)
        return classified(ViTransformerWrapper(image_size=32, patch_size=8, num_classes=5, attn_layers=layers), 32)

    yield "decoder", language
    yield "decoder with rotary positions and RMS norms", lambda: language(rotary_pos_emb=True, use_rmsnorm=True)
    yield "decoder with ALiBi and gated units", lambda: language(alibi_pos_bias=True, ff_glu=True, ff_swish=True)
    yield "ViT", images


def accelerate() -> Iterator[tuple[str, Any]]:
    import accelerate as hf

    def loop(**options: Any) -> dict[str, float]:
        accelerator = hf.Accelerator(cpu=True, **options)
        model = small()

        def backward(loss: torch.Tensor) -> None:
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)

        return trained(model, accelerator.prepare, backward)

    yield "Accelerator", loop


def lightning_fabric() -> Iterator[tuple[str, Any]]:
    import lightning_fabric as lightning

    def loop() -> dict[str, float]:
        double = torch.get_default_dtype() is torch.float64
        fabric = lightning.Fabric(accelerator="cpu", devices=1, precision="64-true" if double else "32-true")
        fabric.launch()
        held: list[Any] = []

        def prepare(model: Any, optimizer: Any, loader: Any, schedule: Any) -> tuple[Any, ...]:
            held.extend(fabric.setup(model, optimizer))
            return (*held, fabric.setup_dataloaders(loader), schedule)

        def backward(loss: torch.Tensor) -> None:
            fabric.backward(loss)
            fabric.clip_gradients(*held, max_norm=1.0)

        return trained(small(), prepare, backward)

    yield "Fabric", loop


def safetensors() -> Iterator[tuple[str, Any]]:
    import safetensors as files
    from safetensors import torch as st

    def there_and_back() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            model, other = filled(small()), small().to(torch.get_default_dtype())
            st.save_model(model, f"{folder}/model")
            st.load_model(other, f"{folder}/model")
            st.save_file(
                {"a": spread(3, 4).to(torch.bfloat16), "b": torch.arange(5)}, f"{folder}/file", {"by": "a test"}
            )
            read = st.load_file(f"{folder}/file")
            whole = st.load(open(f"{folder}/file", "rb").read())  # noqa: SIM115
            with files.safe_open(f"{folder}/file", "pt") as file:
                part = file.get_slice("a")[1:, :2]
                return {
                    "model": size_of(list(other.parameters())), "a": size_of([read["a"]]), "b": float(whole["b"].sum()),
                    "whole": size_of([whole["a"]]), "part": size_of([part]), "known": float(len(file.metadata()["by"])),
                }  # fmt: skip

    yield "models, files and slices", there_and_back


def pytorch_optimizer() -> Iterator[tuple[str, Any]]:
    import pytorch_optimizer as po

    def steps(name: str) -> dict[str, float]:
        model = filled(small())
        optimizer = po.load_optimizer(name)(model.parameters(), lr=0.01)
        inputs, labels, losses = spread(16, 4), torch.arange(16) % 3, []
        for _ in range(4):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        return {"loss": losses[0], "after": losses[-1], "parameters": size_of(list(model.parameters()))}

    for name in (
        "adabelief", "adafactor", "adamp", "adan", "ademamix", "adopt", "came", "lamb", "lion", "madgrad", "mars",
        "nadam", "novograd", "padam", "prodigy", "radam", "ranger", "schedulefreeadamw", "shampoo",
        "stableadamw",
    ):  # fmt: skip
        yield name, lambda n=name: steps(n)


CASES = {
    f.__name__: f
    for f in (
        einops, timm, torchvision, vit_pytorch, transformers, peft, torchmetrics, x_transformers, accelerate,
        lightning_fabric, pytorch_optimizer, safetensors, *cases_geometry.LIBRARIES, *cases_medical.LIBRARIES,
        *cases_training.LIBRARIES, *cases_vision.LIBRARIES,
    )
} | SCIENCE  # fmt: skip


def main() -> None:
    """Prints the numbers of a library's cases, or of those that are named after it; a line of JSON for each."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    numbers, library, *wanted = sys.argv[1:]
    dtype, _, roundings = numbers.partition("+")
    torch.set_default_dtype(getattr(torch, dtype))
    LARGER[0] += int(roundings or 0) * 2.0**-23
    for name, case in CASES[library]():
        if not wanted or name in wanted:
            try:
                result = case()
            except Exception as error:  # the others are measured all the same
                result = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            print(json.dumps({"case": name, **result}), flush=True)


if __name__ == "__main__":
    main()
