package op

import (
	"maps"
	"slices"
)

// What autocast does with each operation's inputs: the lists that PyTorch documents for CPU and CUDA devices. Operations
// that are not here, and that are not made of those that are, take any dtype as it comes.
var (
	castLow = Casts{CastLow, CastLow}
	cast32  = Casts{CastFloat32, CastFloat32}
	castMax = Casts{CastWidest, CastWidest}

	gpuLow = Casts{GPU: CastLow}
	gpu32  = Casts{GPU: CastFloat32}
	gpuMax = Casts{GPU: CastWidest}
	cpu32  = Casts{CPU: CastFloat32}
	cpuMax = Casts{CPU: CastWidest}
)

var autocastPolicies = map[Casts][]string{
	castLow: {
		"matmul", "mm", "bmm", "addmm", "addbmm", "baddbmm", "linear", "prelu", "einsum", "multi_dot", "chain_matmul",
		"matrix_power", "cov", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
		"scaled_dot_product_attention", "lstm_layer", "gru_layer",
	},
	gpuLow:                              {"mv", "addmv"},
	{CPU: CastWidest, GPU: CastLow}:     {"addr"},
	{CPU: CastWidest, GPU: CastFloat32}: {"rms_norm"},
	// PyTorch's own kernel for a CPU, matrix products, casts; that for CUDA is in a list of its own.
	{CPU: CastLow, GPU: CastWidest}: {"inner", "tensordot"},
	cast32: {
		"prod", "cdist", "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
		"cross_entropy", "ctc_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss",
		"multi_margin_loss", "multilabel_margin_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss",
		"soft_margin_loss", "triplet_margin_loss", "local_response_norm",
		"fft_fft", "fft_ifft", "fft_rfft", "fft_irfft", "fft_hfft", "fft_ihfft", "fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn", "fft_hfftn",
		"fft_ihfftn", "stft",
	},
	gpu32: {
		"acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sinh", "tan",
		"pow", "square", "softplus", "sum", "cumsum", "cumprod", "softmax", "log_softmax", "softmin", "logsumexp", "norm",
		"vector_norm", "layer_norm", "group_norm", "cosine_similarity", "pairwise_distance", "dist", "renorm",
		"interpolate", "lp_pool1d", "lp_pool2d", "lp_pool3d", "multilabel_soft_margin_loss",
	},
	cpu32: {
		"trace", "quantile", "nanquantile", "avg_pool3d", "max_pool3d", "max_pool3d_with_indices", "adaptive_avg_pool3d",
		"adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d", "pad",
		"linalg_cholesky", "linalg_cholesky_ex", "linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh", "linalg_householder_product", "linalg_inv", "linalg_lstsq", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_pinv", "linalg_qr", "linalg_solve", "linalg_solve_triangular",
		"linalg_svd", "linalg_svdvals", "geqrf",
	},
	{CPU: CastFloat32, GPU: CastWidest}: {"grid_sample"},
	castMax:                             {"cat", "stack"},
	gpuMax:                              {"addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "index_put", "scatter_add", "index_add"},
	cpuMax:                              {"index_copy"},
}

// readsHalves are operations that compute in float32 under autocast, whose kernels can read a 16-bit first input where a device's kernels
// mix dtypes. It is not cast first, which would be a pass over memory of its own.
var readsHalves = map[string]bool{
	"layer_norm": true, "rms_norm": true, "group_norm": true, "softmax": true, "log_softmax": true, "cross_entropy": true, "sum": true,
}

// autocastOf is what the lists say of each operation; [register] notes it in the row.
var autocastOf = func() map[string]Casts {
	m := map[string]Casts{}
	for casts, names := range autocastPolicies {
		for _, n := range names {
			m[n] = casts
		}
	}
	return m
}()

// AutocastNames returns the names of the operations that have a policy.
func AutocastNames() []string { return slices.Sorted(maps.Keys(autocastOf)) }
