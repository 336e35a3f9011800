package op

import "strings"

// takesComplex has the operations that are defined for complex numbers and do not say so by [Elementwise.overComplex]: those that move
// elements, those that are linear, and those that are made of others. All others refuse complex tensors: what an operation would make of
// them is not what it does to their parts.
var takesComplex = nameSet(`
	abs acos acosh add add_scaled addbmm addcdiv addcmul addmm addmv addr all allclose angle any argwhere as_strided
	as_strided_scatter asin asinh atan atanh atleast_1d atleast_2d atleast_3d baddbmm bilinear block_diag bmm broadcast_tensors
	broadcast_to cartesian_prod cat chain_matmul channel_shuffle chunk clone column_stack combinations complex conj contiguous copy
	cos cosh count_nonzero cross cumprod cumsum cumulative_trapezoid diag diag_embed diagflat diagonal diagonal_scatter diff dist div
	dot dropout dsplit dstack einsum empty_like eq equal exp exp2 expand expand_as expm1 fill flatten flip fliplr flipud float_power
	full full_like gather hsplit hstack imag index index_add index_copy index_fill index_put index_select inner isclose isfinite isinf
	isnan kron ldexp lerp linear log log10 log1p log2 logical_and logical_not logical_or logical_xor mT masked_fill masked_scatter
	masked_select matmul matrix_power mean meshgrid mm movedim mul multi_dot mv nan_to_num narrow narrow_copy ne neg nonzero norm
	normalize ones_like outer pad permute pixel_shuffle pixel_unshuffle polar pow prod put ravel real reciprocal repeat
	repeat_interleave reshape reshape_as roll rot90 rsqrt scatter scatter_add select select_scatter sgn sigmoid sin sinh slice
	slice_backward slice_scatter split split_with_sizes sqrt square squeeze stack std std_mean sub sum swapaxes t take take_along_dim
	tan tanh tensor_split tensor_split_at tensordot tile to trace transpose trapezoid tril triu true_divide unbind unflatten unfold
	unsqueeze var var_mean vdot vector_norm view view_as view_as_complex view_as_real vsplit vstack where zero zeros zeros_like
`)

func nameSet(list string) map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(list) {
		set[name] = true
	}
	return set
}
