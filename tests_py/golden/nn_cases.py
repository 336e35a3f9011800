"""Layers, functions and inputs that are compared with PyTorch: the same list runs there and here."""

import numpy as np


def f(*shape, positive=False, grad=True):
    """Floating-point input."""
    return ("f", shape, positive, grad)


def i(high, *shape, low=0):
    """Integer input."""
    return ("i", shape, low, high)


def mask(*shape):
    """Bool input: about a third True, never a whole row."""
    return ("b", shape)


def const(values, dtype="int64"):
    """Given values."""
    return ("c", values, dtype)


def make_input(spec, rng):
    """Returns an input as an array, and whether it has a gradient."""
    kind = spec[0]
    if kind == "f":
        a = rng.standard_normal(spec[1])
        return (np.abs(a) + 0.1 if spec[2] else a), spec[3]
    if kind == "i":
        return rng.integers(spec[2], spec[3], spec[1]), False
    if kind == "b":
        m = rng.random(spec[1]) < 0.35
        m[..., 0] = False
        return m, False
    return np.array(spec[1], dtype=spec[2]), False


def layer(name, args, inputs, kwargs=None, call=None, evaluate=False):
    """A case: a class of nn, its arguments, its inputs, keyword arguments of the call."""
    return {"name": name, "args": args, "inputs": inputs, "kwargs": kwargs or {}, "call": call or {}, "eval": evaluate}


x23, x234, x2345 = f(2, 6), f(2, 4, 7), f(2, 4, 6, 5)
v3 = f(1, 2, 4, 5, 3)
L = layer

LAYERS = [
    L("Linear", (6, 3), [x23]),
    L("Linear", (6, 3), [f(2, 3, 6)], {"bias": False}),
    L("Linear", (6, 3), [f(6)]),
    L("Bilinear", (3, 4, 2), [f(5, 3), f(5, 4)]),
    L("Bilinear", (3, 4, 2), [f(2, 5, 3), f(2, 5, 4)], {"bias": False}),
    L("Identity", (1,), [x23]),
    L("Embedding", (7, 3), [i(7, 2, 5)]),
    L("Embedding", (7, 3), [const([1, 2, 2, 6, 1])], {"padding_idx": -1, "scale_grad_by_freq": True}),
    L("Embedding", (7, 3), [i(7, 4)], {"max_norm": 0.7}),
    L("EmbeddingBag", (7, 3), [i(7, 4, 3)]),
    L("EmbeddingBag", (7, 3), [i(7, 8), const([0, 3, 3, 5])], {"mode": "sum"}),
    L("EmbeddingBag", (7, 3), [i(7, 8), const([0, 2, 5, 8])], {"mode": "max", "include_last_offset": True}),
    L("EmbeddingBag", (7, 3), [i(7, 4, 3)], {"mode": "mean", "padding_idx": 2}),
    L("Conv1d", (4, 6, 3), [x234]),
    L("Conv1d", (4, 6, 3), [f(4, 9)], {"padding": "same", "dilation": 2, "groups": 2}),
    L("Conv1d", (4, 6, 2), [x234], {"padding": 1, "padding_mode": "circular", "stride": 2}),
    L("Conv2d", (4, 6, 3), [x2345]),
    L("Conv2d", (4, 6, (3, 2)), [x2345], {"stride": (2, 1), "padding": (1, 0), "groups": 2, "bias": False}),
    L("Conv2d", (4, 4, 3), [x2345], {"padding": "same", "padding_mode": "reflect"}),
    L("Conv2d", (4, 4, 3), [x2345], {"padding": "valid", "dilation": (1, 2)}),
    L("Conv2d", (4, 4, 3), [x2345], {"padding": 2, "padding_mode": "replicate"}),
    L("Conv2d", (4, 8, 3), [f(4, 5, 5)], {"groups": 4}),
    L("Conv3d", (2, 3, 2), [v3], {"padding": 1}),
    L("ConvTranspose1d", (4, 6, 3), [x234], {"stride": 2, "output_padding": 1}),
    L("ConvTranspose1d", (4, 6, 3), [x234], {"stride": 3}, {"output_size": (22,)}),
    L("ConvTranspose2d", (4, 6, 3), [x2345], {"stride": 2, "padding": 1, "groups": 2, "dilation": 2}),
    L("ConvTranspose3d", (2, 3, 2), [v3], {"stride": 2}),
    L("MaxPool1d", (3,), [x234]),
    L("MaxPool2d", (2,), [x2345], {"stride": 1, "padding": 1, "ceil_mode": True, "return_indices": True}),
    L("MaxPool2d", ((3, 2),), [f(4, 6, 5)], {"dilation": (1, 2)}),
    L("MaxPool3d", (2,), [v3]),
    L("AvgPool1d", (3,), [x234], {"stride": 2, "padding": 1}),
    L("AvgPool2d", (2,), [x2345], {"padding": 1, "count_include_pad": False, "ceil_mode": True}),
    L("AvgPool2d", ((3, 2),), [x2345], {"divisor_override": 5}),
    L("AvgPool3d", (2,), [v3]),
    L("AdaptiveAvgPool1d", (3,), [x234]),
    L("AdaptiveAvgPool2d", ((None, 2),), [x2345]),
    L("AdaptiveAvgPool2d", (1,), [x2345]),
    L("AdaptiveAvgPool3d", (2,), [v3]),
    L("AdaptiveMaxPool1d", (3,), [x234]),
    L("AdaptiveMaxPool2d", ((4, None),), [x2345], {"return_indices": True}),
    L("AdaptiveMaxPool3d", (2,), [v3]),
    L("LPPool1d", (2, 3), [f(2, 4, 7, positive=True)], {"stride": 2}),
    L("LPPool2d", (3.0, 2), [f(2, 4, 6, 5, positive=True)]),
    L("MaxUnpool1d", (2,), [f(1, 1, 3), const([[[1, 2, 5]]])]),
    L("MaxUnpool2d", (2,), [f(1, 1, 2, 2), const([[[[0, 3], [11, 14]]]])], {}, {"output_size": (1, 1, 5, 4)}),
    L("BatchNorm1d", (4,), [f(5, 4)]),
    L("BatchNorm1d", (4,), [x234], {"affine": False, "momentum": None}),
    L("BatchNorm1d", (4,), [x234], {}, {}, True),
    L("BatchNorm2d", (4,), [x2345], {"eps": 0.1, "momentum": 0.3}),
    L("BatchNorm2d", (4,), [x2345], {"track_running_stats": False}, {}, True),
    L("BatchNorm3d", (2,), [v3]),
    L("LayerNorm", (6,), [x23]),
    L("LayerNorm", ((4, 7),), [x234], {"bias": False, "eps": 0.1}),
    L("LayerNorm", (7,), [x234], {"elementwise_affine": False}),
    L("RMSNorm", (6,), [x23]),
    L("RMSNorm", ((4, 7),), [x234], {"eps": 0.1, "elementwise_affine": False}),
    L("GroupNorm", (2, 4), [x2345]),
    L("GroupNorm", (4, 4), [x234], {"affine": False}),
    L("InstanceNorm1d", (4,), [x234]),
    L("InstanceNorm1d", (4,), [f(4, 7)], {"affine": True}),
    L("InstanceNorm2d", (4,), [x2345], {"affine": True, "track_running_stats": True}),
    L("InstanceNorm2d", (4,), [x2345], {"track_running_stats": True}, {}, True),
    L("InstanceNorm3d", (2,), [v3]),
    L("LocalResponseNorm", (3,), [x2345], {"alpha": 0.5}),
    L("CrossMapLRN2d", (3,), [f(2, 2, 4, 3, grad=False)], {"alpha": 0.5, "k": 2}),
    *(L(n, (), [x23]) for n in (
        "ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Hardtanh", "Sigmoid", "Tanh",
        "LogSigmoid", "Softsign", "Tanhshrink", "ELU", "CELU", "LeakyReLU", "GELU", "GLU", "Hardshrink", "Softshrink",
        "Softplus", "PReLU",
    )),
    L("Hardtanh", (-0.3, 0.4), [x23]),
    L("ELU", (0.5,), [x23]),
    L("CELU", (0.5,), [x23]),
    L("LeakyReLU", (0.3,), [x23]),
    L("GELU", (), [x23], {"approximate": "tanh"}),
    L("GLU", (1,), [f(2, 4, 3)]),
    L("Softplus", (2, 1), [x23]),
    L("PReLU", (4,), [x234]),
    L("Threshold", (0.1, 20.0), [x23]),
    L("RReLU", (), [x23], {}, {}, True),
    L("Softmax", (1,), [x23]),
    L("Softmin", (-1,), [x23]),
    L("LogSoftmax", (0,), [x23]),
    L("Softmax2d", (), [x2345]),
    L("Dropout", (0.3,), [x23], {}, {}, True),
    L("AlphaDropout", (0.0,), [x23]),
    L("MultiheadAttention", (8, 2), [f(3, 2, 8)] * 3),
    L("MultiheadAttention", (8, 2), [f(3, 2, 8), f(5, 2, 6), f(5, 2, 4)], {"kdim": 6, "vdim": 4, "bias": False}),
    L("MultiheadAttention", (8, 4), [f(2, 3, 8), f(2, 5, 8), f(2, 5, 8), mask(2, 5)],
      {"batch_first": True, "add_bias_kv": True, "add_zero_attn": True}, {"average_attn_weights": False}),
    L("MultiheadAttention", (8, 2), [f(3, 8), f(5, 8), f(5, 8)], {}, {"need_weights": False}),
    L("TransformerEncoderLayer", (8, 2, 16, 0.0), [f(5, 2, 8)]),
    L("TransformerEncoderLayer", (8, 2, 16, 0.0, "gelu"), [f(2, 5, 8)], {"batch_first": True, "norm_first": True}),
    L("TransformerDecoderLayer", (8, 2, 16, 0.0), [f(5, 2, 8), f(4, 2, 8)]),
    L("TransformerDecoderLayer", (8, 2, 16, 0.0), [f(2, 5, 8), f(2, 4, 8)],
      {"batch_first": True, "norm_first": True, "bias": False}),
    L("Transformer", (8, 2, 2, 2, 16, 0.0), [f(5, 2, 8), f(4, 2, 8)]),
    L("RNN", (3, 4), [f(5, 2, 3)]),
    L("RNN", (3, 4, 2), [f(2, 5, 3), f(4, 2, 4)], {"nonlinearity": "relu", "batch_first": True, "bidirectional": True}),
    L("RNN", (3, 4), [f(5, 3)], {"bias": False}),
    L("LSTM", (3, 4), [f(5, 2, 3)]),
    L("LSTM", (3, 4, 2), [f(2, 5, 3)], {"batch_first": True, "bidirectional": True}),
    L("LSTM", (3, 4, 2), [f(5, 2, 3)], {"proj_size": 2, "bidirectional": True}),
    L("LSTM", (3, 4), [f(5, 3)], {"bias": False}),
    L("GRU", (3, 4), [f(5, 2, 3), f(1, 2, 4)]),
    L("GRU", (3, 4, 2), [f(2, 5, 3)], {"batch_first": True, "bidirectional": True}),
    L("GRU", (3, 4), [f(5, 3)], {"bias": False}),
    L("RNNCell", (3, 4), [f(2, 3)]),
    L("RNNCell", (3, 4), [f(2, 3), f(2, 4)], {"nonlinearity": "relu", "bias": False}),
    L("LSTMCell", (3, 4), [f(2, 3)]),
    L("LSTMCell", (3, 4), [f(3)], {"bias": False}),
    L("GRUCell", (3, 4), [f(2, 3), f(2, 4)]),
    *(L(n, args, [f(4, 3), f(4, 3, grad=n.endswith(("Similarity", "Distance")))], kw) for n, args, kw in (
        ("L1Loss", (), {}), ("MSELoss", (), {"reduction": "sum"}), ("MSELoss", (), {}),
        ("SmoothL1Loss", (), {"beta": 0.3}),
        ("HuberLoss", (), {"delta": 0.4, "reduction": "none"}),
        ("KLDivLoss", (), {"log_target": True, "reduction": "batchmean"}),
        ("BCEWithLogitsLoss", (), {}),
        ("PoissonNLLLoss", (), {"full": False}), ("SoftMarginLoss", (), {}),
        ("CosineSimilarity", (), {}), ("PairwiseDistance", (), {"p": 3.0, "keepdim": True}),
    )),
    L("CrossEntropyLoss", (), [f(5, 4), i(4, 5)]),
    L("CrossEntropyLoss", (), [f(5, 4, 2), i(4, 5, 2)],
      {"label_smoothing": 0.2, "ignore_index": 1, "reduction": "sum"}),
    L("CrossEntropyLoss", (), [f(5, 4), f(5, 4, grad=False)], {"label_smoothing": 0.1}),
    L("CrossEntropyLoss", (), [f(4), const(2)]),
    L("NLLLoss", (), [f(5, 4), i(4, 5)], {"ignore_index": 2}),
    L("GaussianNLLLoss", (), [f(4, 3), f(4, 3, grad=False), f(4, 3, positive=True)], {"full": True}),
    L("HingeEmbeddingLoss", (), [f(4), const([1, -1, 1, -1], "float64")], {"margin": 0.5}),
    L("MarginRankingLoss", (0.2,), [f(4), f(4), const([1, -1, 1, -1], "float64")]),
    L("CosineEmbeddingLoss", (0.2,), [f(4, 3), f(4, 3), const([1, -1, 1, -1], "float64")]),
    L("MultiMarginLoss", (2,), [f(4, 3), i(3, 4)]),
    L("MultiLabelMarginLoss", (), [f(2, 4), const([[2, 0, -1, 1], [3, -1, 0, 0]])]),
    L("MultiLabelSoftMarginLoss", (), [f(4, 3), const(np.eye(4, 3).tolist(), "float64")]),
    L("TripletMarginLoss", (), [f(4, 3), f(4, 3), f(4, 3)], {"swap": True, "p": 1.0}),
    L("TripletMarginWithDistanceLoss", (), [f(4, 3), f(4, 3), f(4, 3)], {"swap": True}),
    L("BCELoss", (), [const([0.2, 0.7, 0.9], "float64"), const([0.0, 1.0, 0.4], "float64")]),
    L("AdaptiveLogSoftmaxWithLoss", (8, 12, [3, 7]), [f(6, 8), const([0, 2, 4, 11, 7, 6])], {"div_value": 2.0}),
    *(L(n + d, (p,), [x]) for d, x, p in (("1d", x234, (2, 1)), ("2d", x2345, (1, 2, 0, 3)), ("3d", v3, 1)) for n in
      ("ReflectionPad", "ReplicationPad", "CircularPad", "ZeroPad")),
    L("ConstantPad1d", ((2, -1), 0.7), [x234]),
    L("ConstantPad2d", (2, 0.7), [x2345]),
    L("PixelShuffle", (2,), [f(1, 8, 3, 2)]),
    L("PixelUnshuffle", (2,), [f(1, 2, 6, 4)]),
    L("ChannelShuffle", (2,), [x2345]),
    L("Upsample", (), [x234], {"scale_factor": 2}),
    L("Upsample", (), [x2345], {"size": (9, 4), "mode": "bilinear", "align_corners": True}),
    L("Upsample", (), [x2345], {"scale_factor": (1.5, 2.0), "mode": "bicubic"}),
    L("Upsample", (), [v3], {"scale_factor": 1.5, "mode": "trilinear"}),
    L("UpsamplingBilinear2d", (), [x2345], {"scale_factor": 2}),
    L("UpsamplingNearest2d", (), [x2345], {"size": 7}),
    L("Flatten", (), [x2345]),
    L("Flatten", (0, 2), [x2345]),
    L("Unflatten", (1, (2, 2)), [x234]),
    L("Unfold", ((2, 3),), [x2345], {"padding": 1, "stride": 2}),
    L("Fold", ((4, 5), (2, 2)), [f(2, 12, 6)], {"stride": (1, 2)}),
]  # fmt: skip

# Functions: name, inputs (tensors first), further arguments.
FUNCTIONS = [
    ("softmax", [x234], {"dim": 1}),
    ("log_softmax", [x234], {"dim": -1}),
    ("normalize", [x234], {"p": 3.0, "dim": 2}),
    ("pdist", [f(4, 3)], {}),
    ("cosine_similarity", [x234, x234], {"dim": 2}),
    ("pad", [x234], {"pad": (1, 2, 0, 1), "value": 3.0}),
    ("pad", [x2345], {"pad": (1, 1, 2, 0), "mode": "reflect"}),
    ("interpolate", [x2345], {"size": (3, 7), "mode": "area"}),
    ("interpolate", [x2345], {"scale_factor": 0.6, "mode": "nearest-exact"}),
    ("interpolate", [x234], {"size": 5, "mode": "linear", "align_corners": False}),
    ("interpolate", [x2345], {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}),
    ("grid_sample", [x2345, f(2, 3, 4, 2)], {"align_corners": False}),
    ("grid_sample", [x2345, f(2, 3, 4, 2)], {"align_corners": True, "padding_mode": "reflection"}),
    ("grid_sample", [x2345, f(2, 3, 4, 2)], {"mode": "nearest", "padding_mode": "border", "align_corners": False}),
    ("affine_grid", [f(2, 2, 3)], {"size": (2, 1, 3, 4), "align_corners": False}),
    ("one_hot", [i(5, 3, 2)], {"num_classes": 6}),
    ("scaled_dot_product_attention", [f(2, 3, 4, 8), f(2, 3, 5, 8), f(2, 3, 5, 6)], {}),
    ("scaled_dot_product_attention", [f(2, 3, 4, 8), f(2, 3, 4, 8), f(2, 3, 4, 6)], {"is_causal": True, "scale": 0.5}),
    ("scaled_dot_product_attention", [f(2, 4, 4, 8), f(2, 2, 5, 8), f(2, 2, 5, 6)], {"enable_gqa": True}),
    ("scaled_dot_product_attention", [f(2, 3, 4, 8), f(2, 3, 5, 8), f(2, 3, 5, 6), mask(4, 5)], {}),
    ("cross_entropy", [f(5, 4), i(4, 5), f(4, positive=True, grad=False)], {}),
    ("nll_loss", [f(5, 4, 3), i(4, 5, 3), f(4, positive=True, grad=False)], {"reduction": "none"}),
    ("binary_cross_entropy_with_logits", [f(4, 3), f(4, 3, grad=False), f(4, 3, grad=False)], {}),
    ("poisson_nll_loss", [f(4, positive=True), f(4, positive=True, grad=False)], {"log_input": False, "full": True}),
    ("smooth_l1_loss", [x23, x23], {"beta": 0}),
    ("mse_loss", [x23, x23, f(2, 6, positive=True, grad=False)], {"_third": "weight"}),
    ("unfold", [x2345], {"kernel_size": 2, "dilation": 2}),
    ("fold", [f(12, 6)], {"output_size": (4, 5), "kernel_size": 2, "stride": (1, 2)}),
    ("gelu", [x23], {"approximate": "tanh"}),
    ("glu", [x23], {}),
    ("embedding", [i(5, 2, 3), f(5, 4)], {"padding_idx": 1}),
    ("embedding_bag", [i(5, 4, 3), f(5, 4)], {"mode": "sum"}),
    ("local_response_norm", [x2345], {"size": 2, "alpha": 0.3}),
    ("instance_norm", [x2345], {}),
    ("max_pool2d", [x2345], {"kernel_size": 2, "return_indices": True}),
    ("adaptive_avg_pool2d", [x2345], {"output_size": (None, 2)}),
    ("bilinear", [f(4, 2), f(4, 3), f(5, 2, 3)], {}),
    ("pixel_shuffle", [f(8, 3, 2)], {"upscale_factor": 2}),
]
