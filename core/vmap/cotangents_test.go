package vmap_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/vmap"
)

// TestCotangents compares backward passes with batched gradients, through graphs that are the same for all parts, with a loop over the parts.
func TestCotangents(t *testing.T) {
	for i, r := range op.Rows() {
		if *only == "" && !coretest.Drawn(i) || *only != "" && r.Name != *only || r.Func == nil || random[r.Name] || r.Family == "random" || r.Family == "dropout" || r.Name == "rrelu" {
			continue
		}
		for _, s := range r.Samples {
			core.Tidy(func() {
				h := fnv.New64()
				fmt.Fprint(h, r.Name, s.Name)
				draw := rand.New(rand.NewPCG(h.Sum64(), 1))
				var inputs, leaves []*core.Tensor
				for _, d := range described(s) {
					x := made(d, false, draw)
					if inputs = append(inputs, x); x.RequiresGrad() {
						leaves = append(leaves, x)
					}
				}
				var outputs, seeds []*core.Tensor
				for _, y := range call(r, false, filled(s, inputs)) {
					if y.Err() != nil {
						return
					}
					if y.RequiresGrad() {
						outputs = append(outputs, y)
						v := make([]float64, size*y.Numel())
						for i := range v {
							v[i] = draw.NormFloat64()
						}
						seeds = append(seeds, op.To(op.Reshape(core.FromSlice(v), append([]int{size}, y.Shape()...)...), y.DType()))
					}
				}
				if len(outputs) == 0 {
					return
				}
				o := autograd.Options{RetainGraph: true, AllowUnused: true}
				var want []*core.Tensor
				var columns [][]*core.Tensor
				for i := range size {
					own := slices.Clone(seeds)
					for j := range own {
						own[j] = op.Select(seeds[j], 0, i)
					}
					grads, err := autograd.Grad(outputs, leaves, own, o)
					if err != nil {
						return
					}
					columns = append(columns, grads)
				}
				for j := range leaves {
					var list []*core.Tensor
					for i := range size {
						if columns[i][j] != nil {
							list = append(list, op.ToDense(columns[i][j]))
						}
					}
					if len(list) == 0 {
						want = append(want, nil)
						continue
					}
					want = append(want, op.Stack(list, 0))
				}
				l := vmap.Enter(nil, size, vmap.Unsettled)
				defer l.Exit()
				own := slices.Clone(seeds)
				for j := range own {
					own[j] = l.Wrap(seeds[j])
				}
				got, err := autograd.Grad(outputs, leaves, own, o)
				if err != nil {
					t.Errorf("%s %q: %v", r.Name, s.Name, err)
					return
				}
				for j, g := range got {
					if g == nil {
						continue
					}
					if got[j] = l.Unwrap(g); got[j] == nil {
						got[j] = l.Unwrap(l.Batched(g))
					}
				}
				if err := equal(got, want); err != nil {
					t.Errorf("%s %q: %v", r.Name, s.Name, err)
				}
			})
		}
	}
}
