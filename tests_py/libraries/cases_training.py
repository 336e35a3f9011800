"""Cases of libraries that generate images, train models by loops of their own, and embed sentences."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from measures import facts, filled, size_of, small, spread, weighed
from torch import nn


def diffusers() -> Iterator[tuple[str, Any]]:
    import diffusers as hf

    image = {"sample_size": 8, "block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}

    def unconditional() -> dict[str, float]:
        model: Any = filled(
            hf.UNet2DModel(
                **image, attention_head_dim=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            )
        )  # fmt: skip
        schedule: Any = hf.DDPMScheduler(num_train_timesteps=20)
        clean, noise, times = spread(2, 3, 8, 8), spread(2, 3, 8, 8, phase=1.0), torch.tensor([3, 17])
        noisy = schedule.add_noise(clean, noise, times)
        out = facts(model, lambda: nn.functional.mse_loss(model(noisy, times).sample, noise))
        sampler: Any = hf.DDIMScheduler.from_config(schedule.config)
        sampler.set_timesteps(4)
        pipeline = noise
        with torch.no_grad():
            for t in sampler.timesteps:
                pipeline = sampler.step(model(pipeline, t).sample, t, pipeline).prev_sample
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            again: Any = hf.UNet2DModel.from_pretrained(folder, torch_dtype=torch.get_default_dtype())
            read = float(again(noisy, times).sample.double().square().mean())
        ema: Any = hf.training_utils.EMAModel(model.parameters(), decay=0.9)
        ema.step([p + 1 for p in model.parameters()])
        return {
            **out, "sampled": weighed(pipeline), "read": read, "averaged": size_of(list(ema.shadow_params)),
            "signal": weighed(schedule.alphas_cumprod), "velocity": weighed(schedule.get_velocity(clean, noise, times)),
        }  # fmt: skip

    def conditional() -> dict[str, float]:
        model: Any = filled(
            hf.UNet2DConditionModel(
                **image, in_channels=4, out_channels=4, cross_attention_dim=12, attention_head_dim=2,
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            )
        )  # fmt: skip
        latents, words, times = spread(2, 4, 8, 8), spread(2, 5, 12, phase=1.0), torch.tensor([1, 300])
        whole = model(latents, times, words).sample
        model.enable_gradient_checkpointing()
        out = facts(model.train(), lambda: model(latents, times, words).sample.square().mean())
        model.set_attn_processor(hf.models.attention_processor.AttnProcessor())
        return {**out, "whole": weighed(whole), "unfused": weighed(model(latents, times, words).sample)}

    def autoencoder() -> dict[str, float]:
        model: Any = filled(
            hf.AutoencoderKL(
                block_out_channels=(8, 16), norm_num_groups=4, latent_channels=2,
                down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
            )
        )  # fmt: skip
        images = spread(2, 3, 16, 16)

        def loss() -> torch.Tensor:
            latents = model.encode(images).latent_dist
            return (model.decode(latents.mode()).sample - images).abs().mean() + 0.1 * latents.kl().mean()

        out = facts(model, loss)
        model.enable_tiling()
        model.enable_slicing()
        return {**out, "sliced": weighed(model(images).sample)}

    def transformer() -> dict[str, float]:
        model: Any = filled(
            hf.DiTTransformer2DModel(
                num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, patch_size=2,
                num_embeds_ada_norm=20,
            )
        ).eval()  # fmt: skip
        latents, times, labels = spread(2, 4, 8, 8), torch.tensor([1, 15]), torch.tensor([4, 2])
        return facts(model, lambda: model(latents, timestep=times, class_labels=labels).sample.square().mean())

    def flow() -> dict[str, float]:
        model: Any = filled(
            hf.SD3Transformer2DModel(
                sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
                joint_attention_dim=12, caption_projection_dim=16, pooled_projection_dim=10, out_channels=4,
                pos_embed_max_size=16,
            )
        )  # fmt: skip
        latents, words, pooled = spread(2, 4, 8, 8), spread(2, 5, 12), spread(2, 10)
        times = torch.tensor([1.0, 7.0]).to(latents)
        return facts(
            model,
            lambda: model(latents, words, pooled, times).sample.square().mean(),
        )

    def samplers() -> dict[str, float]:
        out = {}
        start, times = spread(1, 3, 6, 6), 5
        for name in (
            "DDIM", "DPMSolverMultistep", "DPMSolverSinglestep", "EulerDiscrete", "HeunDiscrete", "KDPM2Discrete",
            "LMSDiscrete", "PNDM", "DEISMultistep", "FlowMatchEulerDiscrete", "EDMEuler",
        ):  # fmt: skip
            schedule: Any = getattr(hf, f"{name}Scheduler")()
            schedule.set_timesteps(times)
            x = start * getattr(schedule, "init_noise_sigma", 1.0)
            for t in schedule.timesteps:
                at = schedule.scale_model_input(x, t) if hasattr(schedule, "scale_model_input") else x
                x = schedule.step(at.tanh() * 0.5, t, x).prev_sample
            out[name] = weighed(x)
        return out

    yield "UNet2DModel with DDPM and DDIM", unconditional
    yield "UNet2DConditionModel", conditional
    yield "AutoencoderKL", autoencoder
    yield "DiTTransformer2DModel", transformer
    yield "SD3Transformer2DModel", flow
    yield "schedulers", samplers


def pytorch_lightning() -> Iterator[tuple[str, Any]]:
    import pytorch_lightning as pl
    from pytorch_lightning import callbacks as cb

    for name in ("pytorch_lightning", "lightning.pytorch", "lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)

    class Classifier(pl.LightningModule):
        def __init__(self, rate: float = 0.05) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.model = filled(small())
            self.losses: list[float] = []

        def training_step(self, batch: Any, index: int) -> Any:
            loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
            self.log("train_loss", loss, on_step=True, on_epoch=True)
            self.losses.append(loss.item())
            return {"loss": loss}

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", nn.functional.cross_entropy(self.model(batch[0]), batch[1]))

        def predict_step(self, batch: Any, index: int) -> Any:
            return self.model(batch[0]).argmax(-1)

        def test_step(self, batch: Any, index: int) -> None:
            self.log_dict({"right": (self.model(batch[0]).argmax(-1) == batch[1]).double().mean()})

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams["rate"])
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)}

    class Manual(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, index: int) -> None:
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
            self.manual_backward(loss)
            self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            optimizer.step()
            self.losses.append(loss.item())

    class Data(pl.LightningDataModule):
        def setup(self, stage: str) -> None:
            self.held = torch.utils.data.TensorDataset(spread(24, 4), torch.arange(24) % 3)

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(self.held, batch_size=4)

        val_dataloader = test_dataloader = predict_dataloader = train_dataloader

    def trainer(folder: str, **options: Any) -> pl.Trainer:
        double = torch.get_default_dtype() is torch.float64
        return pl.Trainer(
            **{
                "accelerator": "cpu", "devices": 1, "precision": "64-true" if double else "32-true", "max_epochs": 2,
                "default_root_dir": folder, "logger": False, "enable_progress_bar": False,
                "enable_model_summary": False, "enable_checkpointing": False, **options,
            }
        )  # fmt: skip

    def fitted() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            kept, best = cb.ModelCheckpoint(folder, save_last=True), cb.ModelCheckpoint(folder, "best", "val_loss")
            loop = trainer(
                folder, gradient_clip_val=0.5, accumulate_grad_batches=2, enable_checkpointing=True,
                logger=pl.loggers.CSVLogger(folder), log_every_n_steps=1,
                callbacks=[kept, best, cb.LearningRateMonitor(), cb.EarlyStopping("val_loss")],
                check_val_every_n_epoch=1,
            )  # fmt: skip
            model, data = Classifier(), Data()
            loop.fit(model, datamodule=data)
            evaluated = float(loop.callback_metrics["val_loss"])
            mean = float(loop.callback_metrics["train_loss_epoch"])
            tested, guesses = loop.test(model, data, verbose=False), loop.predict(model, data)
            again = Classifier()
            trainer(folder, max_epochs=3).fit(again, datamodule=data, ckpt_path=kept.last_model_path)
            read = Classifier.load_from_checkpoint(best.best_model_path, rate=0.1)
            rows = (Path(loop.logger.log_dir) / "metrics.csv").read_text().splitlines()
            return {
                "loss": model.losses[0], "after": model.losses[-1], "parameters": size_of(list(model.parameters())),
                "evaluated": evaluated, "right": tested[0]["right"],
                "mean": mean, "guesses": weighed(guesses),
                "resumed": again.losses[0], "steps": float(len(again.losses)), "rows": float(len(rows)),
                "read": size_of(list(read.parameters())), "best": float(best.best_model_score),
            }  # fmt: skip

    def averaged() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            model = Manual()
            trainer(folder).fit(model, datamodule=Data())
            other = Classifier()
            trainer(
                folder,
                max_epochs=3,
                num_sanity_val_steps=0,
                limit_train_batches=3,
                profiler="simple",
                callbacks=[
                    cb.StochasticWeightAveraging(0.01, swa_epoch_start=1),
                    cb.Timer(),
                    cb.GradientAccumulationScheduler({1: 2}),
                ],
            ).fit(other, datamodule=Data())
            quick = Classifier()
            trainer(folder, fast_dev_run=2).fit(quick, datamodule=Data())
            return {
                "loss": model.losses[0], "after": model.losses[-1], "parameters": size_of(list(model.parameters())),
                "averaged": size_of(list(other.parameters())), "last": other.losses[-1],
                "quick": quick.losses[-1],
            }  # fmt: skip

    yield "Trainer, checkpoints and callbacks", fitted
    yield "manual optimisation and averaged weights", averaged


def sentence_transformers() -> Iterator[tuple[str, Any]]:
    import sentence_transformers as st
    import transformers as hf
    from sentence_transformers import losses, util

    words = [f"w{i}" for i in range(90)]

    def embedder(folder: str, mode: str = "mean") -> Any:
        config = hf.BertConfig(
            vocab_size=100, max_position_embeddings=32, num_hidden_layers=1, num_attention_heads=2, hidden_size=16,
            intermediate_size=24, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        Path(f"{folder}/vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
        hf.BertTokenizer(f"{folder}/vocab.txt").save_pretrained(folder)
        hf.BertModel(config).save_pretrained(folder)
        from sentence_transformers.sentence_transformer import modules

        body = modules.Transformer(folder)
        parts = [body, modules.Pooling(16, mode), modules.Normalize()]
        return filled(st.SentenceTransformer(modules=parts, device="cpu"))

    def sentences(count: int, phase: int) -> list[str]:
        return [" ".join(words[(i * 7 + j * j + phase) % 90] for j in range(3 + i % 3)) for i in range(count)]

    def embedded() -> dict[str, float]:
        out = {}
        with tempfile.TemporaryDirectory() as folder:
            for mode in ("mean", "cls", "max", "weightedmean", "lasttoken"):
                model = embedder(folder, mode)
                found = model.encode(sentences(6, 0), convert_to_tensor=True, batch_size=4, show_progress_bar=False)
                out[mode] = weighed(found)
            out["similar"] = weighed(model.similarity(found, found))
            hits = util.semantic_search(found[:2], found, top_k=3)
            out["hits"] = sum(h["corpus_id"] * (i + 1) + h["score"] for i, row in enumerate(hits) for h in row)
            groups = util.community_detection(found, threshold=0.5, min_community_size=1)
            out["groups"] = float(sum(i * (k + 1) for k, g in enumerate(groups) for i in g))
            model.save_pretrained(f"{folder}/saved")
            again = st.SentenceTransformer(f"{folder}/saved", device="cpu")
            out["read"] = weighed(again.encode(sentences(2, 0), convert_to_tensor=True, show_progress_bar=False))
        return out

    def lost() -> dict[str, float]:
        scores, pairs = spread(4).abs(), torch.tensor([1, 0, 1, 0])
        ranking = losses.MultipleNegativesRankingLoss
        kinds: dict[str, tuple[Any, int, Any]] = {  # what makes a loss, how many sentences it takes, and its labels
            "ranking": (ranking, 2, None),
            "cached ranking": (lambda m: losses.CachedMultipleNegativesRankingLoss(m, mini_batch_size=2), 2, None),
            "matryoshka": (lambda m: losses.MatryoshkaLoss(m, ranking(m), [16, 8, 4]), 2, None),
            "cosine": (losses.CosineSimilarityLoss, 2, scores), "cosent": (losses.CoSENTLoss, 2, scores),
            "angle": (losses.AnglELoss, 2, scores), "triplet": (losses.TripletLoss, 3, None),
            "contrastive": (losses.ContrastiveLoss, 2, pairs), "online": (losses.OnlineContrastiveLoss, 2, pairs),
            "all triplets": (losses.BatchAllTripletLoss, 1, pairs), "hard": (losses.BatchHardTripletLoss, 1, pairs),
            "semi-hard": (losses.BatchSemiHardTripletLoss, 1, pairs), "mse": (losses.MSELoss, 1, spread(4, 16)),
            "softmax": (lambda m: filled(losses.SoftmaxLoss(m, 16, 3)), 2, torch.tensor([1, 0, 2, 0])),
            "margin": (losses.MarginMSELoss, 3, spread(4)),
        }  # fmt: skip
        out = {}
        with tempfile.TemporaryDirectory() as folder:
            model = embedder(folder)
            for name, (make, columns, labels) in kinds.items():
                filled(model).zero_grad()
                loss = make(model)
                value = loss([model.preprocess(sentences(4, 11 * c)) for c in range(columns)], labels)
                value = sum(value.values()) if isinstance(value, dict) else value
                value.backward()
                norms = [p.grad.square().sum().sqrt() for p in model.parameters() if p.grad is not None]
                out[name], out[f"{name}'"] = float(value), weighed(norms)
        return out

    def evaluated() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            model = embedder(folder)
            from sentence_transformers.sentence_transformer import evaluation

            evaluator = evaluation.EmbeddingSimilarityEvaluator(
                sentences(6, 0), sentences(6, 5), [0.1, 0.5, 0.3, 0.9, 0.2, 0.4]
            )
            return {k: float(v) for k, v in evaluator(model).items()}

    yield "embeddings", embedded
    yield "losses", lost
    yield "evaluator", evaluated


LIBRARIES = (diffusers, pytorch_lightning, sentence_transformers)
