package ddp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A PowerSGD compresses gradients to matrices of low rank by one step of the power method, and adds what that loses to the
// next step's gradients (Vogels, Karimireddy and Jaggi 2019). Make one for each [Reducer], with [NewPowerSGD].
type PowerSGD struct {
	// Rank is the rank of the approximation; 0 means 1.
	Rank int
	// StartStep is the number of steps before compression begins; 0 means 2, after the buckets were rebuilt.
	StartStep int
	// MinCompression is how many times fewer elements a matrix must take to be compressed; 0 means 2.
	MinCompression float64
	// NoErrorFeedback drops what compression loses.
	NoErrorFeedback bool
	// ColdStart begins each step's power method at random, and not where the last one ended.
	ColdStart bool
	// Epsilon is the part of its norm that must be left of a column after those before it were taken out, or it counts as
	// dependent on them; 0 means what the dtype allows.
	Epsilon float64
	// Seed is that of the random matrices, the same on every rank.
	Seed uint64
	// Batched treats a bucket as one square matrix, which is faster and less exact.
	Batched bool

	buckets map[int]*powerBucket
	random  *core.Generator
	sent    int
	whole   int
}

// A powerBucket is the state that PowerSGD keeps for a bucket.
type powerBucket struct {
	steps    int
	numel    int
	residual *core.Tensor
	right    []*core.Tensor // one a matrix; nil for what is sent as it is
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
	p.buckets = map[int]*powerBucket{}
	p.random = core.NewGenerator(p.Seed)
	return &p
}

// Ratio returns how many times fewer elements were sent than there were, since compression began.
func (p *PowerSGD) Ratio() float64 {
	if p.sent == 0 {
		return 1
	}
	return float64(p.whole) / float64(p.sent)
}

// Release gives back what is kept from step to step.
func (p *PowerSGD) Release() {
	for _, s := range p.buckets {
		s.release()
	}
	p.buckets = map[int]*powerBucket{}
}

func (s *powerBucket) release() {
	if s.residual != nil {
		s.residual.Release()
	}
	for _, q := range s.right {
		if q != nil {
			q.Release()
		}
	}
	s.residual, s.right = nil, nil
}

// Hook is the [Hook].
func (p *PowerSGD) Hook(b *Bucket) (*core.Tensor, error) {
	s := p.buckets[b.Index()]
	if s == nil {
		s = &powerBucket{}
		p.buckets[b.Index()] = s
	}
	s.steps++
	if s.steps <= p.StartStep {
		return AllReduceHook(b)
	}
	if s.numel != b.numel { // the first time, or parameters were frozen
		s.release()
		s.numel = b.numel
	}
	whole := b.Buffer()
	if !p.NoErrorFeedback {
		if s.residual == nil {
			s.residual = op.ZerosLike(whole, op.TensorOptions{}).Keep()
		}
		op.AddInPlace(whole, s.residual)
	}
	matrices, rest := p.matrices(b)
	if s.right == nil {
		s.right = make([]*core.Tensor, len(matrices))
	}
	given := op.Clone(whole)
	if err := p.compress(b, s, matrices, rest); err != nil {
		return nil, err
	}
	if !p.NoErrorFeedback {
		// What was sent as it is lost nothing: there, the average minus itself.
		if err := s.saveResidual(b, given, matrices); err != nil {
			return nil, err
		}
	}
	return whole, nil
}

// matrix is a part of a bucket as a matrix of n x m.
type matrix struct {
	view          *core.Tensor
	n, m          int
	approximation *core.Tensor // this rank's approximation, before averaging
}

// matrices returns the parts of the bucket that are worth compressing and those that are not.
func (p *PowerSGD) matrices(b *Bucket) (list []matrix, rest []*core.Tensor) {
	if p.Batched {
		n := 1
		for n*n < b.numel {
			n++
		}
		if n > p.Rank {
			return []matrix{{view: b.flat, n: n, m: n}}, nil
		}
		return nil, []*core.Tensor{b.flat}
	}
	for _, v := range b.Gradients() {
		if v.Dim() < 2 || v.Numel() == 0 {
			rest = append(rest, v)
			continue
		}
		n := v.Size(0)
		m := v.Numel() / n
		r := min(n, m, p.Rank)
		if float64((n+m)*r)*p.MinCompression >= float64(n*m) {
			rest = append(rest, v)
			continue
		}
		list = append(list, matrix{view: v, n: n, m: m})
	}
	return list, rest
}

// square returns the elements of the matrix, with zeros after them where it is larger than its part of the bucket.
func (x matrix) square() *core.Tensor {
	if x.view.Numel() == x.n*x.m {
		return op.Reshape(x.view, x.n, x.m)
	}
	d := x.view.DType()
	pad := op.ZerosWith([]int{x.n*x.m - x.view.Numel()}, op.TensorOptions{DType: &d, Device: x.view.Device()})
	return op.Reshape(op.Cat([]*core.Tensor{x.view, pad}, 0), x.n, x.m)
}

// compress replaces the matrices by the average of the ranks' approximations, and the rest by its average.
func (p *PowerSGD) compress(b *Bucket, s *powerBucket, list []matrix, rest []*core.Tensor) error {
	var lefts, rights, squares []*core.Tensor
	for _, v := range rest {
		p.count(v.Numel(), v.Numel())
	}
	for i := range list {
		x := &list[i]
		r := min(x.n, x.m, p.Rank)
		q := s.right[i]
		if q == nil || p.ColdStart {
			if q != nil {
				q.Release()
			}
			q = p.start(x.m, r, b).Keep()
			s.right[i] = q
		}
		if err := p.orthogonalize(q); err != nil {
			return err
		}
		sq := x.square()
		squares = append(squares, sq)
		lefts = append(lefts, op.MatMul(sq, q))
		p.count(x.n*x.m, (x.n+x.m)*r)
	}
	if all := append(append([]*core.Tensor{}, rest...), lefts...); len(all) > 0 {
		if err := average(b, all); err != nil {
			return err
		}
	}
	for i := range list {
		if err := p.orthogonalize(lefts[i]); err != nil {
			return err
		}
		q := op.MatMul(op.Transpose(squares[i], 0, 1), lefts[i])
		if err := op.CopyInPlace(s.right[i], q).Err(); err != nil {
			return err
		}
		list[i].approximation = op.MatMul(lefts[i], op.Transpose(q, 0, 1))
		rights = append(rights, s.right[i])
	}
	if len(rights) > 0 {
		if err := average(b, rights); err != nil {
			return err
		}
	}
	for i, x := range list {
		y := op.MatMul(lefts[i], op.Transpose(s.right[i], 0, 1))
		if err := x.write(x.view, y); err != nil {
			return err
		}
	}
	return nil
}

func (p *PowerSGD) count(whole, sent int) {
	p.whole += whole
	p.sent += sent
}

// average averages tensors that may not lie in the bucket.
func average(b *Bucket, list []*core.Tensor) error {
	for _, t := range list {
		if err := t.Err(); err != nil {
			return err
		}
	}
	return b.Average(list...)
}

// write copies y, of the matrix's shape, to its part of a bucket.
func (x matrix) write(to, y *core.Tensor) error {
	flat := op.Reshape(y, x.n*x.m)
	return op.CopyInPlace(to, op.Reshape(op.Narrow(flat, 0, 0, to.Numel()), to.Shape()...)).Err()
}

// saveResidual stores the error of compression: this rank's gradients minus its approximation, and 0 for tensors that were not
// compressed.
func (s *powerBucket) saveResidual(b *Bucket, given *core.Tensor, list []matrix) error {
	if err := op.ZeroInPlace(s.residual).Err(); err != nil {
		return err
	}
	for _, x := range list {
		at := x.view.Offset() - b.flat.Offset()
		lost, was := op.Narrow(s.residual, 0, at, x.view.Numel()), op.Narrow(given, 0, at, x.view.Numel())
		if err := x.write(lost, x.approximation); err != nil {
			return err
		}
		if err := op.CopyInPlace(lost, op.Sub(was, lost)).Err(); err != nil {
			return err
		}
	}
	return nil
}

// start returns a random matrix, the same on every rank.
func (p *PowerSGD) start(m, r int, b *Bucket) *core.Tensor {
	return op.RandnWith([]int{m, r}, op.RandomOptions{DType: new(b.dtype), Device: b.device, Generator: p.random})
}

// orthogonalize makes the columns of q, [n, r], orthonormal in place, and those zero that depend on the ones before (Gram and
// Schmidt).
func (p *PowerSGD) orthogonalize(q *core.Tensor) error {
	tolerance := p.Epsilon
	if tolerance == 0 {
		tolerance = map[core.DType]float64{core.Float64: 1e-10, core.Float32: 1e-5, core.Float16: 1e-2, core.BFloat16: 5e-2}[q.DType()]
	}
	least := op.Mul(op.Sqrt(op.Sum(op.Mul(q, q), []int{0}, false)), core.Num(tolerance))
	r := q.Size(1)
	for i := range r {
		c := op.Narrow(q, 1, i, 1)
		norm := op.Sqrt(op.Sum(op.Mul(c, c), nil, false))
		scale := op.Where(op.Gt(norm, op.Select(least, 0, i)), op.Reciprocal(norm), core.Num(0.0))
		if err := op.CopyInPlace(c, op.Where(op.Gt(scale, core.Num(0.0)), op.Mul(c, scale), core.Num(0.0))).Err(); err != nil {
			return err
		}
		if i+1 < r {
			rest := op.Narrow(q, 1, i+1, r-i-1)
			if err := op.SubInPlace(rest, op.MatMul(c, op.MatMul(op.Transpose(c, 0, 1), rest))).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
