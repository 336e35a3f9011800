package op

import "strings"

// takesComplex has the operations that are defined for complex numbers and do not say so by [Elementwise.overComplex]: those that move
// elements, those that are linear, and those that are made of others. All others refuse complex tensors: what an operation would make of
// them is not what it does to their parts.
var takesComplex = nameSet(`
	adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d addbmm addmm addmv addr all allclose any argwhere
	as_strided as_strided_scatter atleast_1d atleast_2d atleast_3d avg_pool1d avg_pool2d avg_pool3d
	baddbmm bilinear block_diag bmm broadcast_tensors broadcast_to
	cartesian_prod cat chain_matmul channel_shuffle chunk clone col2im column_stack combinations complex contiguous
	conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d copy corrcoef count_nonzero cov cross
	csr_matmul csr_sampled_matmul cumprod cumsum cumulative_trapezoid
	diag diag_embed diagflat diagonal diagonal_scatter diff dist dot dropout dsplit dstack
	einsum embedding empty_like equal expand expand_as
	fft_fft fft_fftn fft_fftshift fft_hfft fft_hfftn fft_ifft fft_ifftn fft_ifftshift fft_ihfft fft_ihfftn fft_irfft
	fft_irfftn fft_rfft fft_rfftn fill flatten flip fliplr flipud float_power full full_like
	gather gaussian_nll_loss geqrf gru_layer
	hsplit hstack
	im2col imag index index_add index_copy index_fill index_put index_reduce index_select inner istft
	kron
	l1_loss ldexp linalg_cholesky linalg_cholesky_ex linalg_det linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh
	linalg_householder_product linalg_inv linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu_factor_ex linalg_lu_solve linalg_matrix_norm linalg_pinv linalg_qr linalg_slogdet linalg_solve
	linalg_solve_triangular linalg_svd linalg_svdvals linalg_triangular linear linear_scan logcumsumexp logical_and logical_not
	logical_or logical_xor logsumexp lstm_layer lu_unpack
	make_dual masked_scatter masked_select matmul matrix_power mean meshgrid mm movedim mT multi_dot mv
	nan_to_num narrow narrow_copy nonzero norm normalize
	ones_like ormqr outer
	pad pairwise_distance permute pixel_shuffle pixel_unshuffle poisson_nll_loss polar prod put
	ravel real renorm repeat repeat_interleave reshape reshape_as rms_norm roll rot90
	scatter scatter_add scatter_reduce select select_scatter slice slice_backward slice_scatter sparse_coo_tensor
	sparse_csr_tensor split split_with_sizes squeeze stack std std_mean stft sum swapaxes
	t take take_along_dim tensor_split tensor_split_at tensordot tile to to_sparse trace transpose trapezoid triangle_backward tril
	triplet_margin_loss triu true_divide
	unbind unflatten unfold unsqueeze
	vander var var_mean vdot vector_norm view view_as view_as_complex view_as_real vsplit vstack
	zero zeros zeros_like
`)

func nameSet(list string) map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(list) {
		set[name] = true
	}
	return set
}
