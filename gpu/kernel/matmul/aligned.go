package matmul

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// libraryAlignment is the number of bytes of which rows of matrices must be multiples, and of which their addresses must be, for a
	// library's programs for tensor cores. If they are not, cuBLASLt takes programs that need five to nine times as long on an H200.
	libraryAlignment = 16
	// stageBytes limits the memory for results that are copied to rows that are not aligned.
	stageBytes = 256 << 20
)

// aligned computes a large product on tensor cores by a library although its rows are not aligned, and reports whether it has. It copies
// matrices whose rows begin between multiples of the alignment. What M, N and K are more than a multiple are products of their own.
func (p *Product) aligned(r *shader.Recorder) (done bool, err error) {
	if !p.onTensorCores(r) || p.M*p.N*p.K < r.GPU.AlignedWork {
		return false, nil
	}
	unit, reuse := libraryAlignment/p.A.DType.Size(), r.GPU.AlignedReuse
	pitch := func(row, col int) int {
		if col == 1 {
			return row
		}
		return col
	}
	packA := unaligned(p.A, pitch(p.ARow, p.ACol))
	packB := unaligned(p.B, pitch(p.BRow, p.BCol))
	stage := unaligned(p.Out, p.CRow)
	cut := cuts{k: p.K, n: p.N - p.N%(libraryAlignment/p.Out.DType.Size()), m: p.M}
	if p.ACol == 1 || p.BRow == 1 {
		cut.k -= p.K % unit
	}
	if p.BCol == 1 {
		cut.n = min(cut.n, p.N-p.N%unit)
	}
	if p.ARow == 1 && p.ACol != 1 {
		cut.m -= p.M % unit
	}
	sums := p.Out.DType // of products that are added
	if cut.k < p.K && sums.IsHalf() {
		sums, stage = core.Float32, true
	}
	switch {
	case !packA && !packB && !stage && cut == cuts{p.M, p.N, p.K}, cut.m == 0 || cut.n == 0 || cut.k == 0, // nothing to do, or too small
		packA && p.N < reuse, packB && p.M < reuse, stage && (p.K < reuse || p.Beta != 0 || p.bias != nil && p.bias.DType != sums):
		return false, nil
	}
	q, kept := *p, r.Temps()
	var staged *core.Operand
	rows := min(max(stageBytes/(sums.Size()*p.N)/256*256, 256), p.M)
	if packA {
		q.A, q.ARow, q.ACol, err = packed(r, p.A, p.M, p.K, p.ARow, p.ACol)
	}
	if packB && err == nil {
		q.B, q.BRow, q.BCol, err = packed(r, p.B, p.K, p.N, p.BRow, p.BCol)
	}
	if stage && err == nil {
		staged, err = stageOf(r, sums, rows, p.N)
	}
	if kind, _ := core.KindOf(err); kind == core.MemoryError { // the slow programs need none
		r.Release(kept)
		return false, nil
	}
	switch {
	case err != nil:
	case stage:
		err = q.runStaged(r, staged, cut)
	default:
		err = q.runCut(r, cut)
	}
	return err == nil, err
}

// onTensorCores reports whether a library computes the product on tensor cores as a single one, to rows.
func (p *Product) onTensorCores(r *shader.Recorder) bool {
	byRows := func(row, col int) bool { return row == 1 || col == 1 }
	return r.GPU.Library && !p.Folded && p.Gather == nil && p.Gap == 0 && p.Batch.Count == 1 && p.libraryTypes() &&
		(p.A.DType.IsHalf() || p.A.DType == core.Float32 && p.Reduced) && p.CCol == 1 && byRows(p.ARow, p.ACol) && byRows(p.BRow, p.BCol)
}

// unaligned reports whether rows that are so many elements apart are not aligned.
func unaligned(o *core.Operand, apart int) bool {
	unit := libraryAlignment / o.DType.Size()
	return apart%unit != 0 || int(shader.Base(o))%unit != 0
}

// packed returns a copy of a matrix in scratch memory, whose rows, or columns, are aligned. Its strides are row and col.
func packed(r *shader.Recorder, o *core.Operand, rows, cols, row, col int) (copied *core.Operand, toRow, toCol int, err error) {
	if col != 1 {
		copied, toCol, toRow, err = packed(r, o, cols, rows, col, row)
		return copied, toRow, toCol, err
	}
	copied, err = stageOf(r, o.DType, rows, cols)
	if err != nil {
		return nil, 0, 0, err
	}
	from := *o
	from.Shape, from.Strides = copied.Shape, []int{row, 1}
	return copied, copied.Strides[0], 1, copyRows(r, copied, &from)
}

// stageOf returns scratch memory for a matrix with aligned rows.
func stageOf(r *shader.Recorder, d core.DType, rows, cols int) (*core.Operand, error) {
	apart := shader.Ceil(cols, libraryAlignment) * libraryAlignment
	m, err := r.Temp(d.Size() * rows * apart)
	return &core.Operand{Memory: m, DType: d, Shape: []int{rows, cols}, Strides: []int{apart, 1}}, err
}

func copyRows(r *shader.Recorder, to, from *core.Operand) error {
	return copying.Copy(r, &core.Call{Op: "matmul", Outs: []core.Operand{*to}, Ins: []core.Operand{*from}})
}

// runStaged computes the product in scratch memory with aligned rows, as many at a time as there fit, and copies them to the output.
func (p *Product) runStaged(r *shader.Recorder, stage *core.Operand, cut cuts) error {
	rows := stage.Shape[0]
	for first := 0; first < p.M; first += rows {
		part := *p
		part.M = min(rows, p.M-first)
		part.A, part.Out, part.CRow = shader.Image(p.A, first, p.ARow), stage, stage.Strides[0]
		whole := cut
		if whole.m = part.M; cut.m < p.M {
			whole.m -= part.M % (libraryAlignment / p.A.DType.Size())
		}
		if err := part.runCut(r, whole); err != nil {
			return err
		}
		from, to := *stage, *shader.Image(p.Out, first, p.CRow)
		from.Shape = []int{part.M, p.N}
		to.Shape, to.Strides = from.Shape, []int{p.CRow, 1}
		if err := copyRows(r, &to, &from); err != nil {
			return err
		}
	}
	return nil
}

// cuts are the sizes up to which the dimensions of a product are aligned.
type cuts struct{ m, n, k int }

// runCut computes the product in parts that end at the cuts.
func (p *Product) runCut(r *shader.Recorder, cut cuts) error {
	for _, m := range [][2]int{{0, cut.m}, {cut.m, p.M}} {
		for _, n := range [][2]int{{0, cut.n}, {cut.n, p.N}} {
			for _, k := range [][2]int{{0, cut.k}, {cut.k, p.K}} {
				part := *p
				part.M, part.N, part.K = m[1]-m[0], n[1]-n[0], k[1]-k[0]
				if min(part.M, part.N, part.K) == 0 {
					continue
				}
				part.A = shader.Image(shader.Image(p.A, m[0], p.ARow), k[0], p.ACol)
				part.B = shader.Image(shader.Image(p.B, k[0], p.BRow), n[0], p.BCol)
				part.Out = shader.Image(shader.Image(p.Out, m[0], p.CRow), n[0], p.CCol)
				if p.bias != nil {
					part.bias = shader.Image(p.bias, n[0], p.bias.Strides[0])
				}
				if k[0] > 0 {
					part.Beta, part.bias = 1, nil
				}
				if err := part.single(r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
