package linalg

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.LinalgQR, qrCall) }

// qrCall: Outs[0], Outs[1] = Q [m, min(m, n)] and R of Ins[0] = Q R.
func qrCall(r *shader.Recorder, c *core.Call) error {
	a := &c.Ins[0]
	rank := len(a.Shape)
	m, n := a.Shape[rank-2], a.Shape[rank-1]
	q, err := newQR(r, core.Numel(a.Shape[:rank-2]), m, n, func(x *matrices, to block) error {
		return x.copyTo(r, to, blockIn(a), m, n, "v")
	})
	if err != nil || q.batch == 0 || q.low == 0 {
		return err
	}
	if err := q.factorise(r); err != nil {
		return err
	}
	if err := q.orthogonal(r, blockIn(&c.Outs[0])); err != nil {
		return err
	}
	return q.copyTo(r, blockIn(&c.Outs[1]), q.whole(), q.low, n, upperTriangle)
}

// upperTriangle is the element v of a matrix, or 0 below the diagonal, and identityMatrix the element of an identity.
const upperTriangle, identityMatrix = "select(0.0, v, row <= col)", "select(0.0, 1.0, row == col)"

// A qr factorises matrices [m, n] by reflections I - v vᵀ, where v is 0 or has the square norm 2. The matrices are [A | V], in which R
// replaces A, and the vectors of the reflections are the columns of V.
//
// The reflections of a panel of columns are multiplied to I - V U⁻¹ Vᵀ, where U is upper triangular with a diagonal of ones, and above it
// the products of the vectors with each other. So they are applied to the other columns by two products and the solution for a triangle.
//
// Bischof, Van Loan: The WY representation for products of Householder matrices, 1987; Schreiber, Van Loan: A storage-efficient WY
// representation for products of Householder transformations, 1989.
type qr struct {
	*matrices
	low, cols int // numbers of reflections, and of columns of A
	panels    []qrPanel
	inner     core.Memory // the lower triangles Uᵀ of the panels
	scratch   core.Memory // products of a panel's vectors with columns
}

// A qrPanel is how a workgroup holds a panel: columns first to first+count. An invocation has elements of one column.
type qrPanel struct {
	first, count int
	width        int // a program's largest count
	lanes        int // invocations for a column
	vectors      int // vec4 that an invocation has in registers; 0 means that the panel stays in memory
	at           int // where Uᵀ is in inner
}

// newQR returns a qr of matrices that fill copies to a block.
func newQR(r *shader.Recorder, batch, m, n int, fill func(x *matrices, to block) error) (*qr, error) {
	q := &qr{matrices: &matrices{batch: batch, m: m}, low: min(m, n), cols: n}
	q.n = n + q.low
	if batch == 0 || q.low == 0 {
		return q, nil
	}
	if err := q.allocate(r); err != nil {
		return nil, err
	}
	size, widest := 0, 0
	for first := 0; first < q.low; {
		p := q.panel(r, first)
		p.at = size
		size += batch * p.width * p.width
		widest = max(widest, p.width)
		first += p.count
		q.panels = append(q.panels, p)
	}
	var err error
	if q.inner, err = r.Reals(size); err != nil {
		return nil, err
	}
	if q.scratch, err = r.Reals(batch * widest * n); err != nil {
		return nil, err
	}
	return q, fill(q.matrices, q.whole())
}

// panel returns the panel at column first. Taller panels have more invocations for a column and fewer columns, as long as registers hold
// them.
func (q *qr) panel(r *shader.Recorder, first int) qrPanel {
	const vectors = 8 // in registers
	height, threads := q.m-first, min(r.GPU.Invocations, 1024)
	p := qrPanel{first: first, width: panelWidth(q.low), lanes: 8}
	for p.width >= 8 {
		for p.lanes*p.width <= threads {
			p.vectors = 1
			for 4*p.lanes*p.vectors < height && p.vectors < vectors {
				p.vectors *= 2
			}
			if 4*p.lanes*p.vectors >= height {
				p.count = min(p.width, q.low-first)
				return p
			}
			p.lanes *= 4
		}
		p.width /= 2
		p.lanes = threads / p.width
	}
	p.width, p.vectors = panelWidth(q.low), 0
	p.lanes = threads / p.width
	p.count = max(1, min(p.width, q.low-first, longestDispatch/(3*shader.Ceil(height, p.lanes))))
	return p
}

// factorise replaces A by R.
func (q *qr) factorise(r *shader.Recorder) error {
	for _, p := range q.panels {
		if err := q.factorisePanel(r, p); err != nil {
			return err
		}
		next := p.first + p.count
		if err := q.reflect(r, p, q.whole().at(p.first, next), q.cols-next, false); err != nil {
			return err
		}
		r.Flush()
	}
	return nil
}

// orthogonal writes Q.
func (q *qr) orthogonal(r *shader.Recorder, to block) error {
	if err := q.copyTo(r, to, to, q.m, q.low, identityMatrix); err != nil {
		return err
	}
	for _, p := range slices.Backward(q.panels) { // to the columns that are not those of an identity yet
		if err := q.reflect(r, p, to.at(p.first, p.first), q.low-p.first, true); err != nil {
			return err
		}
		r.Flush()
	}
	return nil
}

// multiply multiplies columns [m, columns] by Q.
func (q *qr) multiply(r *shader.Recorder, b block, columns int) error {
	for _, p := range slices.Backward(q.panels) {
		if err := q.reflect(r, p, b.at(p.first, 0), columns, true); err != nil {
			return err
		}
		r.Flush()
	}
	return nil
}

// reflect multiplies columns of b, from the panel's first row on, by the panel's reflections: the last one first, or with backward the first
// one last.
func (q *qr) reflect(r *shader.Recorder, p qrPanel, b block, columns int, backward bool) error {
	if columns <= 0 {
		return nil
	}
	height := q.m - p.first
	v := q.whole().at(p.first, q.cols+p.first)
	w := q.blockOf(q.scratch, p.width, columns)
	if err := q.product(r, w, v.transposed(), b, p.count, columns, height, 1, 0); err != nil {
		return err
	}
	inner := q.blockOf(q.inner, p.width, p.width)
	inner.first = p.at
	t := triangle{block: inner, width: p.width, count: p.count, unit: true}
	if backward {
		t.block, t.upper = inner.transposed(), true
	}
	if err := q.solvePanel(r, t, w, columns); err != nil {
		return err
	}
	return q.product(r, b, v, w, height, columns, p.count, -1, 1)
}
