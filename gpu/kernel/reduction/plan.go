package reduction

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// maxSharedElements is the number of elements up to which the invocations of a workgroup share columns. On an H200 this saves 1 to 2 us of
// 7 to 11 up to here, and nothing from three times as many elements on.
const maxSharedElements = 1 << 23

// A plan divides a reduction between invocations. If the reduced elements are contiguous, a workgroup computes a result; if the results are
// contiguous, an invocation does. If there are too few results for that, each workgroup takes a few neighbouring results, or the elements
// are divided into pieces, whose states a second dispatch combines.
type plan struct {
	kept, reduced shader.Loop
	width         int  // invocations of each result
	side          int  // neighbouring results, or vec4 of them, of a workgroup
	vec4          bool // elements are read as vec4: four of one result, or one of each of four
	pieces, chunk int  // pieces of a result's elements, and elements of a piece, or vec4 of them if they are of one result
}

func (f *Fold) divide(gpu *shader.Device, in *core.Operand, outs []*core.Operand, dims []int64) *plan {
	p := &plan{width: 1, side: 1}
	p.kept, p.reduced = split(in, outs, dims)
	n := p.reduced.Count
	rows := n > 16 && len(p.reduced.Sizes) > 0
	if rows && len(p.kept.Sizes) > 0 {
		inner, across := p.kept.Strides[0][len(p.kept.Sizes)-1], p.reduced.Strides[0][len(p.reduced.Sizes)-1]
		rows = across <= inner || p.kept.Count < 64
	}
	if rows {
		if p.width = 64; n > 512 {
			p.width = 256
		}
	}
	p.vec4 = f.kind == expr.Number && p.readsVec4(in)
	results := p.kept.Count
	switch {
	case p.vec4 && rows:
		n /= 4
	case p.vec4:
		results /= 4
	}
	p.pieces = 1
	if each := n / p.width; each > 64 && results > 0 && results*p.width < shader.SaturatingInvocations {
		p.pieces = min(max(shader.SaturatingInvocations/(results*p.width), 1), each/16, 1024)
	}
	if side := p.columns(gpu, results, n); p.pieces > 1 && side > 0 {
		p.pieces, p.side, p.width = 1, side, shader.Threads/side
	}
	p.pieces = max(p.pieces, shader.Ceil(n, shader.MaxLoop*p.width))
	p.chunk = shader.Ceil(n, p.pieces)
	return p
}

// columns returns the number of neighbouring vec4 of results of a workgroup, if a single dispatch reads all n elements of each. It returns
// 0 if two dispatches are faster, because there are few workgroups or many elements.
func (p *plan) columns(gpu *shader.Device, results, n int) int {
	if p.width > 1 || !p.vec4 || 4*results*n > maxSharedElements {
		return 0
	}
	side := 0
	for s := 2; s <= gpu.ColumnVectors && results%s == 0 && results/s >= gpu.ColumnGroups && n*s >= 16*shader.Threads; s *= 2 {
		side = s
	}
	return side
}

// readsVec4 reports whether elements can be read as vec4: along the reduced dimensions for workgroups of one result, along the kept ones
// otherwise.
func (p *plan) readsVec4(in *core.Operand) bool {
	if !shader.Vec4(in) {
		return false
	}
	inner, other := &p.reduced, &p.kept
	if p.width == 1 {
		inner, other = other, inner
	}
	last := len(inner.Sizes) - 1
	if last < 0 || inner.Strides[0][last] != 1 || inner.Sizes[last]%4 != 0 {
		return false
	}
	divides := func(n int) bool { return n%4 == 0 }
	return shader.All(inner.Strides[0][:last], divides) && shader.All(other.Strides[0], divides)
}

// split returns the loops over the kept and the reduced dimensions of in. The kept loop has the strides of in, followed by those of outs,
// in which the reduced dimensions are absent or of size 1.
func split(in *core.Operand, outs []*core.Operand, dims []int64) (kept, reduced shader.Loop) {
	kept.Strides, reduced.Strides = make([][]int, 1+len(outs)), make([][]int, 1)
	kept.Count, reduced.Count = 1, 1
	steps := make([]int, 1+len(outs))
	at := 0
	for d, n := range in.Shape {
		if slices.Contains(dims, int64(d)) {
			reduced.Count *= n
			reduced.Push(n, in.Strides[d])
			if len(outs[0].Shape) == len(in.Shape) {
				at++
			}
			continue
		}
		steps[0] = in.Strides[d]
		for i, o := range outs {
			steps[1+i] = o.Strides[at]
		}
		at++
		kept.Count *= n
		kept.Push(n, steps...)
	}
	return kept, reduced
}
