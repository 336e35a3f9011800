// Package linalg has the GPU kernels that factorise and solve batches of matrices.
package linalg

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/shader"
)

// Small matrices are factorised by one workgroup each. Larger ones are cut into panels of columns: a workgroup factorises a panel, and products
// apply it to the rest. Matrices are in scratch memory, in float32 or float64. Operands are contiguous.

const (
	matrixThreads = 64
	// longestDispatch is about how many loop iterations an invocation runs in a dispatch.
	longestDispatch = 20000
)

// Errors for the first matrix whose status is not 0.
const (
	singularMatrix    = "matrix %d is singular, want one that can be inverted"
	notPositiveMatrix = "matrix %d is not positive definite"
	notFiniteMatrix   = "no convergence for matrix %d, which may hold NaN or infinity"
)

// matrices are copies of a batch [batch, m, n] of matrices in scratch memory, each with a status word.
type matrices struct {
	batch, m, n  int
	data, status core.Memory
	dtype        core.DType // of data
}

// newMatrices copies Ins[0] to scratch memory.
func newMatrices(r *shader.Recorder, c *core.Call) (x *matrices, err error) {
	a := &c.Ins[0]
	rank := len(a.Shape)
	x = &matrices{batch: core.Numel(a.Shape[:rank-2]), m: a.Shape[rank-2], n: a.Shape[rank-1]}
	if a.Numel() == 0 && x.m > 0 && x.n > 0 {
		x.batch = 0
	}
	if x.batch == 0 {
		return x, nil
	}
	if err := x.allocate(r); err != nil {
		return x, err
	}
	return x, x.copyTo(r, x.whole(), blockIn(a), x.m, x.n, "v")
}

// allocate makes the status words, which are 0, and memory for the matrices.
func (x *matrices) allocate(r *shader.Recorder) (err error) {
	x.dtype = r.RealType()
	if x.status, err = r.Temp(4 * x.batch); err != nil {
		return err
	}
	r.Clear(shader.F32Operand(x.status, 0, x.batch))
	x.data, err = r.Reals(max(x.batch*x.m*x.n, 1))
	return err
}

// report makes the first status that is not 0 the error of the call. what is the format of the error, for the number of the matrix.
func (x *matrices) report(r *shader.Recorder, c *core.Call, what string) error {
	s := shader.New(r, "matrices' status")
	at, count := s.WordsOf("status", x.status), s.Uint(x.batch)
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error { return core.Errorf(core.MatrixError, c.Op, what, at) })
	return s.Run(r, 1, func(w *shader.Text) {
		w.Reduce("first", "u32", "min(a, b)", 256)
		w.EachGroup(256, "1u")
		w.Add(`  var first = 0xffffffffu;
  for (var i = li; i < %s && first == 0xffffffffu; i += 256u) {
    if (status[%s + i] != 0u) { first = i; }
  }
  first = whole_first(li, first);
  if (li == 0u && first != 0xffffffffu) { %s }`, count, at, fault("first"))
	})
}

// storeWords writes n words to out as integers.
func (x *matrices) storeWords(r *shader.Recorder, out *core.Operand, from core.Memory, n int) error {
	s := shader.New(r, "store words")
	y, at, count := s.Out("y", out, expr.I64, expr.Number), s.WordsOf("words", from), s.Uint(n)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add("  st_y(%s + i, pair(words[%s + i], 0u));", y, at)
	})
}
