package ddp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A PowerSGD is a communication hook that sends low-rank approximations of gradients (Vogels, Karimireddy and Jaggi 2019, "PowerSGD:
// Practical Low-Rank Gradient Compression for Distributed Optimization"). A gradient M is approximated by P Q^T, from one step of the power
// method: P = M Q, averaged and orthogonalised; then Q = M^T P, averaged. The error is added to the next step's gradients. Create one with
// [NewPowerSGD] for each [Reducer].
type PowerSGD struct {
	// Rank is the rank of the approximation; 0 means 1.
	Rank int
	// StartStep is the number of first steps without compression; 0 means 2, by which time buckets are rebuilt.
	StartStep int
	// MinCompression is the minimum compression rate of a matrix. Matrices below it are sent uncompressed. 0 means 2.
	MinCompression float64
	// NoErrorFeedback drops the error instead of adding it to the next step's gradients.
	NoErrorFeedback bool
	// ColdStart starts each step's power method from a random Q instead of the last step's.
	ColdStart bool
	// Epsilon is a tolerance of the orthogonalisation. A column of which less than this fraction of its norm is orthogonal to the columns
	// before it becomes zero. 0 means a default for the dtype.
	Epsilon float64
	// Seed is the seed of the random matrices. It must be the same on every rank.
	Seed uint64
	// Batched treats a bucket as one square matrix, which is faster and less accurate.
	Batched bool

	buckets                 map[int]*powerSGDState // by bucket index
	random                  *core.Generator
	numelBefore, numelAfter int // elements before and after compression
}

// A powerSGDState is the state for one bucket, kept between steps.
type powerSGDState struct {
	steps    int
	numel    int
	residual *core.Tensor   // the last step's error
	qs       []*core.Tensor // the last step's Q of each compressed matrix
}

// NewPowerSGD returns p with its defaults filled in.
func NewPowerSGD(p PowerSGD) *PowerSGD {
	fill := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	fill(&p.Rank, 1)
	fill(&p.StartStep, 2)
	if p.MinCompression == 0 {
		p.MinCompression = 2
	}
	p.buckets = map[int]*powerSGDState{}
	p.random = core.NewGenerator(p.Seed)
	return &p
}

// Ratio returns the compression rate since compression began: elements before compression, divided by elements sent.
func (p *PowerSGD) Ratio() float64 {
	if p.numelAfter == 0 {
		return 1
	}
	return float64(p.numelBefore) / float64(p.numelAfter)
}

// Release frees the memory that is kept between steps.
func (p *PowerSGD) Release() {
	for _, s := range p.buckets {
		s.release()
	}
	p.buckets = map[int]*powerSGDState{}
}

func (s *powerSGDState) release() {
	if s.residual != nil {
		s.residual.Release()
	}
	for _, q := range s.qs {
		if q != nil {
			q.Release()
		}
	}
	s.residual, s.qs = nil, nil
}

// Hook is the communication hook, see [Reducer.RegisterHook].
func (p *PowerSGD) Hook(b *Bucket) (*core.Tensor, error) {
	s := p.buckets[b.Index()]
	if s == nil {
		s = &powerSGDState{}
		p.buckets[b.Index()] = s
	}
	s.steps++
	if s.steps <= p.StartStep {
		return AllReduceHook(b)
	}
	if s.numel != b.numel { // first call, or parameters were frozen
		s.release()
		s.numel = b.numel
	}
	buffer := b.Buffer()
	if !p.NoErrorFeedback {
		if s.residual == nil {
			s.residual = op.ZerosLike(buffer, op.TensorOptions{}).Keep()
		}
		op.AddInPlace(buffer, s.residual)
	}
	matrices, uncompressed := p.matrices(b)
	if s.qs == nil {
		s.qs = make([]*core.Tensor, len(matrices))
	}
	input := op.Clone(buffer)
	if err := p.averageLowRank(b, s, matrices, uncompressed); err != nil {
		return nil, err
	}
	if !p.NoErrorFeedback {
		if err := s.saveResidual(b, input, matrices); err != nil {
			return nil, err
		}
	}
	return buffer, nil
}

// A matrix is a gradient, or with Batched a whole bucket, seen as a matrix.
type matrix struct {
	view          *core.Tensor // of the bucket's buffer
	rows, cols    int
	approximation *core.Tensor // this rank's approximation, before averaging
}

// matrices returns the bucket's gradients that are worth compressing as matrices, and the others.
func (p *PowerSGD) matrices(b *Bucket) (list []matrix, uncompressed []*core.Tensor) {
	if p.Batched {
		n := 1
		for n*n < b.numel {
			n++
		}
		if n > p.Rank {
			return []matrix{{view: b.flat, rows: n, cols: n}}, nil
		}
		return nil, []*core.Tensor{b.flat}
	}
	for _, v := range b.Gradients() {
		if v.Dim() < 2 || v.Numel() == 0 {
			uncompressed = append(uncompressed, v)
			continue
		}
		n := v.Size(0)
		m := v.Numel() / n
		rank := min(n, m, p.Rank)
		if float64((n+m)*rank)*p.MinCompression >= float64(n*m) {
			uncompressed = append(uncompressed, v)
			continue
		}
		list = append(list, matrix{view: v, rows: n, cols: m})
	}
	return list, uncompressed
}

// padded returns the elements as a matrix, with zeros at the end if the view has fewer elements.
func (x matrix) padded() *core.Tensor {
	if x.view.Numel() == x.rows*x.cols {
		return op.Reshape(x.view, x.rows, x.cols)
	}
	d := x.view.DType()
	pad := op.ZerosWith([]int{x.rows*x.cols - x.view.Numel()}, op.TensorOptions{DType: &d, Device: x.view.Device()})
	return op.Reshape(op.Cat([]*core.Tensor{x.view, pad}, 0), x.rows, x.cols)
}

// averageLowRank replaces each matrix by the low-rank approximation of its average over the ranks, and uncompressed gradients by their
// average.
func (p *PowerSGD) averageLowRank(b *Bucket, s *powerSGDState, list []matrix, uncompressed []*core.Tensor) error {
	var ms, ps, qs []*core.Tensor
	for _, v := range uncompressed {
		p.countElements(v.Numel(), v.Numel())
	}
	for i := range list {
		x := &list[i]
		rank := min(x.rows, x.cols, p.Rank)
		q := s.qs[i]
		if q == nil || p.ColdStart {
			if q != nil {
				q.Release()
			}
			q = p.randomQ(x.cols, rank, b).Keep()
			s.qs[i] = q
		}
		if err := p.orthogonalize(q); err != nil {
			return err
		}
		m := x.padded()
		ms = append(ms, m)
		ps = append(ps, op.MatMul(m, q))
		p.countElements(x.rows*x.cols, (x.rows+x.cols)*rank)
	}
	if all := append(append([]*core.Tensor{}, uncompressed...), ps...); len(all) > 0 {
		if err := average(b, all); err != nil {
			return err
		}
	}
	for i := range list {
		if err := p.orthogonalize(ps[i]); err != nil {
			return err
		}
		q := op.MatMul(op.Transpose(ms[i], 0, 1), ps[i])
		if err := op.CopyInPlace(s.qs[i], q).Err(); err != nil {
			return err
		}
		list[i].approximation = op.MatMul(ps[i], op.Transpose(q, 0, 1))
		qs = append(qs, s.qs[i])
	}
	if len(qs) > 0 {
		if err := average(b, qs); err != nil {
			return err
		}
	}
	for i, x := range list {
		y := op.MatMul(ps[i], op.Transpose(s.qs[i], 0, 1))
		if err := x.write(x.view, y); err != nil {
			return err
		}
	}
	return nil
}

func (p *PowerSGD) countElements(before, after int) {
	p.numelBefore += before
	p.numelAfter += after
}

// average averages tensors over the ranks. It returns the error of a tensor that has one.
func average(b *Bucket, list []*core.Tensor) error {
	for _, t := range list {
		if err := t.Err(); err != nil {
			return err
		}
	}
	return b.Average(list...)
}

// write copies y, of the matrix's shape, to its part of a bucket, without the padding.
func (x matrix) write(to, y *core.Tensor) error {
	flat := op.Reshape(y, x.rows*x.cols)
	return op.CopyInPlace(to, op.Reshape(op.Narrow(flat, 0, 0, to.Numel()), to.Shape()...)).Err()
}

// saveResidual stores the error of compression: this rank's gradients minus their approximation. It is 0 for uncompressed gradients.
func (s *powerSGDState) saveResidual(b *Bucket, input *core.Tensor, list []matrix) error {
	if err := op.ZeroInPlace(s.residual).Err(); err != nil {
		return err
	}
	for _, x := range list {
		at := x.view.Offset() - b.flat.Offset()
		residual, gradient := op.Narrow(s.residual, 0, at, x.view.Numel()), op.Narrow(input, 0, at, x.view.Numel())
		if err := x.write(residual, x.approximation); err != nil {
			return err
		}
		if err := op.CopyInPlace(residual, op.Sub(gradient, residual)).Err(); err != nil {
			return err
		}
	}
	return nil
}

// randomQ returns a random matrix, the same on every rank.
func (p *PowerSGD) randomQ(cols, rank int, b *Bucket) *core.Tensor {
	return op.RandnWith([]int{cols, rank}, op.RandomOptions{DType: new(b.dtype), Device: b.device, Generator: p.random})
}

// orthogonalize makes the columns of q orthonormal in place, by the Gram-Schmidt process. Columns that depend on the ones before become zero.
func (p *PowerSGD) orthogonalize(q *core.Tensor) error {
	tolerance := p.Epsilon
	if tolerance == 0 {
		tolerance = map[core.DType]float64{core.Float64: 1e-10, core.Float32: 1e-5, core.Float16: 1e-2, core.BFloat16: 5e-2}[q.DType()]
	}
	threshold := op.Mul(op.Sqrt(op.Sum(op.Mul(q, q), []int{0}, false)), core.Num(tolerance))
	cols := q.Size(1)
	for i := range cols {
		column := op.Narrow(q, 1, i, 1)
		norm := op.Sqrt(op.Sum(op.Mul(column, column), nil, false))
		scale := op.Where(op.Gt(norm, op.Select(threshold, 0, i)), op.Reciprocal(norm), core.Num(0.0))
		if err := op.CopyInPlace(column, op.Where(op.Gt(scale, core.Num(0.0)), op.Mul(column, scale), core.Num(0.0))).Err(); err != nil {
			return err
		}
		if i+1 < cols {
			others := op.Narrow(q, 1, i+1, cols-i-1)
			if err := op.SubInPlace(others, op.MatMul(column, op.MatMul(op.Transpose(column, 0, 1), others))).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
