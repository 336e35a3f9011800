package op

import "strings"

// takesComplex has the operations that are defined for complex numbers and do not say so by [Elementwise.overComplex]: those that move
// elements, those that are linear, and those that are made of others. All others refuse complex tensors: what an operation would make of
// them is not what it does to their parts.
var takesComplex = nameSet(`
	addbmm addmm addmv addr all allclose any argwhere as_strided as_strided_scatter atleast_1d atleast_2d atleast_3d baddbmm bilinear
	block_diag bmm broadcast_tensors broadcast_to cartesian_prod cat chain_matmul channel_shuffle chunk clone column_stack
	combinations complex contiguous copy count_nonzero cross csr_matmul csr_sampled_matmul cumprod cumsum cumulative_trapezoid diag diag_embed diagflat diagonal
	diagonal_scatter diff dist dot dropout dsplit dstack einsum empty_like equal expand expand_as fill flatten flip fliplr flipud
	float_power full full_like gather hsplit hstack imag index index_add index_copy index_fill index_put index_select inner kron ldexp
	linear logical_and logical_not logical_or logical_xor mT make_dual masked_scatter masked_select matmul matrix_power mean meshgrid mm movedim
	multi_dot mv nan_to_num narrow narrow_copy nonzero norm normalize ones_like outer pad permute pixel_shuffle pixel_unshuffle polar
	prod put ravel real repeat repeat_interleave reshape reshape_as roll rot90 scatter scatter_add select select_scatter slice
	slice_backward slice_scatter split split_with_sizes squeeze stack std std_mean sum swapaxes t take take_along_dim tensor_split
	tensor_split_at tensordot tile to trace transpose trapezoid tril triu true_divide unbind unflatten unfold unsqueeze var var_mean
	vdot vector_norm view view_as view_as_complex view_as_real vsplit vstack zero zeros zeros_like
`)

func nameSet(list string) map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(list) {
		set[name] = true
	}
	return set
}
