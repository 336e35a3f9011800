package op_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/op"
)

// large has arguments for operations whose samples do not grow with their tensors, or grow too much.
var large = map[string][]any{
	"affine_grid":  {op.Shaped(60, 2, 3), []int{60, 1, 30, 30}, false},
	"arange":       {core.IntNum(0), core.IntNum(40000), core.IntNum(1)},
	"atleast_1d":   {op.Shaped(40000)},
	"broadcast_to": {op.Shaped(200, 1), 200, 200},
	"combinations": {op.Shaped(300), 2, false},
	"ctc_loss":     {op.Shaped(40, 3, 400), op.Indices([]int{3, 2}, 1, 2, 3, 4, 5, 5), []int{40, 39, 9}, []int{2, 1, 2}, op.CTCOptions{}},
	"diagflat":     {op.Shaped(200), 0},
	"eye":          {200, 201},
	"full":         {[]int{200, 201}, core.Num(1.5)},
	"linspace":     {0.0, 1.0, 40000},
	"fft_fftfreq":  {40000, 1.0},
	"fft_rfftfreq": {80000, 1.0},
	"logspace":     {0.0, 1.0, 40000, 10.0},
	"ones":         {[]int{200, 201}},
	"rand":         {[]int{200, 201}},
	"randint":      {0, 9, []int{200, 201}},
	"randn":        {[]int{200, 201}},
	"randperm":     {40000},
	"reshape_as":   {op.Shaped(200, 201), op.Shaped(201, 200)},
	"tril_indices": {300, 301, 0},
	"triu_indices": {300, 301, 0},
	"view":         {op.Shaped(200, 201), 201, 200},
	"zeros":        {[]int{200, 201}},
}

// TestNoRowDependsOnTheNumberOfThreads enlarges the samples of every row beyond what one thread computes alone, and compares
// results and gradients bit for bit.
func TestNoRowDependsOnTheNumberOfThreads(t *testing.T) {
	old := cpu.NumThreads()
	defer cpu.SetNumThreads(old)
	limit := cpu.MemoryLimit() // some samples make far more of more
	defer cpu.SetMemoryLimit(limit)
	cpu.SetMemoryLimit(256 << 20)
	for i, r := range op.Rows() {
		if r.Func == nil || r.Name == "empty" || r.Name == "empty_like" { // without values
			continue
		}
		if !coretest.Drawn(i) {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			samples, more := r.Samples, enlarged
			if s, ok := large[r.Name]; ok {
				samples = []op.Sample{{Args: s}}
				more = func(s op.Sample) []op.Sample { return []op.Sample{s} }
			}
			done, enough := 0, coretest.Rounds(2)
			if len(r.Elementwise) > 0 {
				enough = 1
			}
			for i, s := range samples {
				if done == enough {
					break
				}
				inRank(t, func() {
					for _, large := range more(s) {
						m := newMaker(r.Name+s.Name, core.Float32, contiguous, r.NoGrad == "")
						args := m.arguments(large)
						var want [][]byte
						for _, threads := range []int{1, 5} {
							require.NoError(t, cpu.SetNumThreads(threads))
							got, err := m.bits(r, args)
							if err != nil {
								break
							}
							if want == nil {
								want = got
							}
							require.Len(t, got, len(want))
							for j := range got {
								require.True(t, bytes.Equal(want[j], got[j]), "sample %d, value %d", i, j)
							}
						}
						if want != nil {
							done++
							break
						}
					}
				})
			}
			require.NotZero(t, done, "no sample can be enlarged: give it one that is large")
		})
	}
}

// enlarged returns samples like s of tens of thousands of elements, if the operation takes them: with all sizes
// multiplied, with more of what stands first, and with more of what stands last.
func enlarged(s op.Sample) (list []op.Sample) {
	const enough, most = 40000, 1 << 20
	n, rank, first, last := 0, 0, 0, 0 // of the largest tensor, or that of most dimensions
	reshape(s, -1, func(shape []int) []int {
		if rank < len(shape) || len(shape) > 0 && n < core.Numel(shape) {
			first, last = shape[0], shape[len(shape)-1]
		}
		n, rank = max(n, core.Numel(shape)), max(rank, len(shape))
		return shape
	})
	if n == 0 {
		return nil
	}
	add := func(fn func(shape []int)) {
		fits := true
		v, changed := reshape(s, -1, func(shape []int) []int {
			before := core.Numel(shape)
			shape = slices.Clone(shape)
			if fn(shape); core.Numel(shape) > max(most, before) {
				fits = false
				return nil
			}
			return shape
		})
		if changed && fits {
			list = append(list, v)
		}
	}
	times := (enough + n - 1) / n
	each := int(math.Ceil(math.Pow(float64(times), 1/float64(max(rank, 1)))))
	add(func(shape []int) {
		for i := range shape {
			shape[i] *= each
		}
	})
	add(func(shape []int) {
		if len(shape) > 0 && shape[0] == first {
			shape[0] *= times
		}
	})
	add(func(shape []int) {
		if i := len(shape) - 1; i >= 0 && shape[i] == last {
			shape[i] *= times
		}
	})
	return list
}

// bits returns the elements of an operation's results and of its gradients. The tensors are left to the scope around: the next
// call's must not lie where these do, or an element that is never written would look right.
func (m *maker) bits(r *op.Row, args []any) (list [][]byte, err error) {
	out := m.apply(r.Call, args, m.leaves)
	var outputs, seeds []*core.Tensor
	for _, o := range out {
		if o.Numel() > 1<<22 {
			return nil, fmt.Errorf("too much of it")
		}
		if err := o.Wait(); err != nil {
			return nil, err
		}
		if o.RequiresGrad() {
			outputs, seeds = append(outputs, o), append(seeds, op.FullLike(o, core.Num(0.37), op.TensorOptions{}))
		}
	}
	grads, err := autograd.Grad(outputs, requiring(m.leaves), seeds, autograd.Options{AllowUnused: true})
	if err != nil {
		return nil, err
	}
	for _, x := range append(out, grads...) {
		if x == nil {
			continue
		}
		b, err := x.Bytes()
		if err != nil {
			return nil, err
		}
		list = append(list, bytes.Clone(b))
	}
	return list, nil
}
