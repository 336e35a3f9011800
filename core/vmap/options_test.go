package vmap_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/vmap"
)

// uses are calls with options that the samples of the rows lack: tensors among the options, and what is counted in each part.
func uses() map[string]struct {
	tensors []op.T
	call    func(x []*core.Tensor) []*core.Tensor
} {
	type use = struct {
		tensors []op.T
		call    func(x []*core.Tensor) []*core.Tensor
	}
	one := func(t *core.Tensor) []*core.Tensor { return []*core.Tensor{t} }
	two, last := 2, -1
	rows := op.Indices([]int{5}, 1, 0, 2, 2, 3)
	bag := func(o op.EmbeddingBagOptions) func(x []*core.Tensor) []*core.Tensor {
		return func(x []*core.Tensor) []*core.Tensor {
			own := o
			own.Offsets = op.Sub(op.CumSum(x[2], 0), x[2])
			if len(x) > 3 {
				own.PerSampleWeights = x[3]
			}
			return one(op.EmbeddingBag(x[0], x[1], own))
		}
	}
	square := func(o op.EmbeddingBagOptions) func(x []*core.Tensor) []*core.Tensor {
		return func(x []*core.Tensor) []*core.Tensor { return one(op.EmbeddingBag(x[0], x[1], o)) }
	}
	rnn := []op.T{op.Shaped(3, 2, 3), op.Shaped(2, 2), op.Shaped(6, 3), op.Shaped(6, 2), op.Shaped(6), op.Shaped(6)}
	wide := op.Shaped(3, 4)
	wide.DType, wide.Fixed = core.Float32, true
	return map[string]use{
		"bags at offsets":         {[]op.T{rows, op.Shaped(4, 2), op.Indices([]int{3}, 2, 0, 3)}, bag(op.EmbeddingBagOptions{})},
		"bags up to offsets":      {[]op.T{rows, op.Shaped(4, 2), op.Indices([]int{3}, 3, 0, 2)}, bag(op.EmbeddingBagOptions{Mode: "max", IncludeLastOffset: true})},
		"bags with weights":       {[]op.T{rows, op.Shaped(4, 2), op.Indices([]int{2}, 9, 1), op.Shaped(5)}, bag(op.EmbeddingBagOptions{Mode: "sum", PaddingIdx: &two})},
		"bags that count":         {[]op.T{op.Indices([]int{2, 3}, 1, 0, 2, 2, 2, 3), op.Shaped(4, 2)}, square(op.EmbeddingBagOptions{ScaleGradByFreq: true})},
		"bags that count, padded": {[]op.T{op.Indices([]int{2, 3}, 1, 0, 2, 2, 2, 3), op.Shaped(4, 2)}, square(op.EmbeddingBagOptions{ScaleGradByFreq: true, PaddingIdx: &last})},
		"bags without indices":    {[]op.T{op.Indices([]int{2, 0}), op.Shaped(4, 2)}, square(op.EmbeddingBagOptions{})},
		"rows that count": {[]op.T{rows, op.Shaped(4, 2)}, func(x []*core.Tensor) []*core.Tensor {
			return one(op.Embedding(x[0], x[1], op.EmbeddingOptions{ScaleGradByFreq: true, PaddingIdx: &last}))
		}},
		"rows with padding": {[]op.T{rows, op.Shaped(4, 2)}, func(x []*core.Tensor) []*core.Tensor {
			return one(op.Embedding(x[0], x[1], op.EmbeddingOptions{PaddingIdx: &two}))
		}},
		"a reversed gru": {rnn, func(x []*core.Tensor) []*core.Tensor {
			y, h := op.GRULayer(x[0], x[1], x[2], x[3], x[4], x[5], op.RecurrentOptions{Reverse: true})
			return []*core.Tensor{y, h}
		}},
		"a gru of many steps": {append([]op.T{op.Shaped(5, 2, 3)}, rnn[1:]...), func(x []*core.Tensor) []*core.Tensor {
			y, h := op.GRULayer(x[0], x[1], x[2], x[3], x[4], x[5], op.RecurrentOptions{})
			return []*core.Tensor{y, h}
		}},
		"a histogram of one bin": {[]op.T{op.Shaped(2, 3)}, func(x []*core.Tensor) []*core.Tensor { return one(op.HistC(x[0], 1, -0.5, 0.5)) }},
		"a histogram in float32": {[]op.T{wide}, func(x []*core.Tensor) []*core.Tensor { return one(op.HistC(x[0], 7, -0.7, 0.9)) }},
		"powers, three of them":  {[]op.T{op.Shaped(4)}, func(x []*core.Tensor) []*core.Tensor { return one(op.Vander(x[0], 3, true)) }},
		"no powers":              {[]op.T{op.Shaped(4)}, func(x []*core.Tensor) []*core.Tensor { return one(op.Vander(x[0], 0, true)) }},
		"labels after one another": {[]op.T{op.Shaped(5, 2, 4), op.Indices([]int{4}, 1, 2, 3, 3)}, func(x []*core.Tensor) []*core.Tensor {
			return one(op.CTCLoss(x[0], x[1], []int{5, 4}, []int{1, 3}, op.CTCOptions{}))
		}},
		"more labels than are used": {[]op.T{op.Shaped(5, 4), op.Indices([]int{4}, 1, 2, 3, 3)}, func(x []*core.Tensor) []*core.Tensor {
			return one(op.CTCLoss(x[0], x[1], []int{5}, []int{2}, op.CTCOptions{Reduction: "none"}))
		}},
		"short-time transforms": {[]op.T{op.Shaped(2, 20)}, func(x []*core.Tensor) []*core.Tensor {
			return one(op.Abs(op.STFT(x[0], 4, nil, op.STFTOptions{Center: true})))
		}},
		"signals back": {[]op.T{op.Shaped(2, 20)}, func(x []*core.Tensor) []*core.Tensor {
			return one(op.ISTFT(op.STFT(x[0], 4, nil, op.STFTOptions{Center: true}), 4, nil, op.STFTOptions{Center: true}))
		}},
		"put where a number stands":   {[]op.T{op.Shaped(3, 4), op.Indices([]int{2}, -1, 3), op.Shaped(1, 2)}, func(x []*core.Tensor) []*core.Tensor { return one(op.Put(x[0], x[1], x[2], true)) }},
		"a mask of less, with a rest": {[]op.T{op.Shaped(3, 1), op.Mask([]int{3, 2}, 0, 1, 1, 1, 0, 0), op.Shaped(4)}, func(x []*core.Tensor) []*core.Tensor { return one(op.MaskedScatter(x[0], x[1], x[2])) }},
		"covariances of two":          {[]op.T{op.Shaped(2, 1, 5)}, func(x []*core.Tensor) []*core.Tensor { return one(op.Cov(op.Select(x[0], 0, 0), 0, op.CovOptions{})) }},
	}
}

// TestOptions compares such calls with a loop over the parts, as TestRows does, for each choice of which tensors are batched.
func TestOptions(t *testing.T) {
	all := uses()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if !coretest.Drawn(i) {
			continue
		}
		u := all[name]
		for choice := 1; choice < 1<<len(u.tensors); choice++ {
			core.Tidy(func() {
				random := rand.New(rand.NewPCG(uint64(len(name)), 1))
				var whole []*core.Tensor
				for i, d := range u.tensors {
					whole = append(whole, made(d, choice>>i&1 != 0, random))
				}
				if looped(whole, choice, u.call) == nil {
					t.Fatalf("%s fails", name)
				}
				compare(t, fmt.Sprintf("%s, batched %b", name, choice), whole, choice, u.call)
			})
		}
	}
}

// Bags of one part must not take what lies in front of the first bag of the next, which is an error without vmap too.
func TestNothingLiesBeforeTheFirstBag(t *testing.T) {
	core.Tidy(func() {
		l := vmap.Enter(nil, 2, vmap.Unsettled)
		defer l.Exit()
		weight := op.Ones(4, 2)
		bag := func(starts *core.Tensor) error {
			at := l.Wrap(core.FromSlice([]int64{0, 1, 2, 3, 0, 1}, 2, 3))
			out := l.Unwrap(op.EmbeddingBag(at, weight, op.EmbeddingBagOptions{Offsets: l.Wrap(starts)}))
			_, err := core.Values[float64](out)
			return err
		}
		require.NoError(t, bag(core.FromSlice([]int64{0, 2, 0, 1}, 2, 2)))
		require.Error(t, bag(core.FromSlice([]int64{0, 2, 1, 2}, 2, 2)))
	})
}
