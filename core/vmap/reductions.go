package vmap

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// reductionRules are those of operations that work along dimensions.
func reductionRules(add func(r rule, names string)) {
	add(over(1), "sum mean amax amin all any nanmean nansum logsumexp prod var std var_mean std_mean count_nonzero")
	add(over(2), "norm vector_norm")
	add(positions, "argmax argmin")
	add(along(1), "max min median nanmedian mode softmax log_softmax softmin cumsum cumprod logcumsumexp cummax cummin sort argsort glu flip")
	add(along(2), "kthvalue topk normalize diff cosine_similarity cross")
	add(func(u *use) []*core.Tensor {
		if u.tensors[1] != nil {
			return nil
		}
		return along(3)(u)
	}, "trapezoid cumulative_trapezoid")
	add(where{args: []int{2}}.rule, "fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft")
	add(over(1), "fft_fftshift fft_ifftshift")
	add(transformed, "fft_fftn fft_ifftn fft_rfftn fft_irfftn fft_hfftn fft_ihfftn")
	add(leading(2), `geqrf linalg_ldl_factor_ex linalg_cholesky linalg_cholesky_ex linalg_det linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_inv
		linalg_lu_factor_ex linalg_matrix_norm linalg_pinv linalg_qr linalg_slogdet linalg_svd linalg_svdvals matrix_power tril triu mT`)
}

// positions is for the positions of extremes, which count in the tensor flattened where no dimension is given.
func positions(u *use) []*core.Tensor {
	if len(argument[[]int](u, 1)) > 0 {
		return along(1)(u)
	}
	if argument[bool](u, 2) {
		return nil
	}
	flat := op.Reshape(u.whole[0], u.size, -1)
	if flat.Err() != nil {
		return []*core.Tensor{flat}
	}
	return u.results(u.Call([]any{flat, []int{1}, false}))
}

// transformed is for Fourier transforms over several dimensions: those given, or the last ones for which there is a size, or all.
func transformed(u *use) []*core.Tensor {
	n := u.rank()
	sizes, dims := argument[[]int](u, 1), argument[[]int](u, 2)
	if n == 0 {
		return nil
	}
	if dims == nil {
		dims = through(n)
		if sizes != nil && len(sizes) <= n {
			dims = dims[n-len(sizes):]
		}
		for i := range dims {
			dims[i]--
		}
	}
	return along(2)(&use{core.Application{Op: u.Op, Args: []any{u.Args[0], u.Args[1], dims, u.Args[3]}, Call: u.Call}, u.Level, u.tensors, u.whole, u.batched})
}
