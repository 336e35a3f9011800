package collective

// The plan of a collective: which pieces of which ranks are joined, and where the results go.

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

const (
	// smallBytes is the size up to which one rank does all the work, because waking the others costs more.
	smallBytes = 32 << 10
	// cacheLine is the granularity of shares, in bytes, so that no two ranks write to one cache line.
	cacheLine = 64
)

// A source identifies a piece: its rank, its index, and whether it is in Outs.
type source struct {
	rank, piece int
	out         bool
}

// piece returns a piece of the operation of its rank.
func (o *Operation) piece(s source) *Piece {
	if s.out {
		return &o.Outs[s.piece]
	}
	return &o.Ins[s.piece]
}

// A step joins pieces of several ranks into others, by one launch of the kernel "combine".
type step struct {
	owner   int // rank whose stream runs the step
	op      contract.CombineOp
	divisor float64
	ins     []source
	parts   [][]source // ins that are joined first, each list for itself; nil means that all are joined at once
	outs    []source
	from, n int
	rows    int // of all elements of pieces in rows: how many; otherwise 0

	onDevice *source // input that the device of the only output adds itself; see [job.splitOnDevice]
}

// steps returns the plan of a collective, or false if the ranks' pieces do not match. last is the rank that arrived last. With whole, each
// piece is read once, in one step; otherwise the ranks share the work of a step. With words, no two ranks write parts of one 32-bit word.
func steps(ops []*Operation, last int, whole, words bool) ([]step, bool) {
	return (&plan{ops: ops, last: last, whole: whole, words: words}).make()
}

// stepsAcross is steps for ranks in several processes, which home returns. The plan depends only on what all of them know.
func stepsAcross(ops []*Operation, home func(rank int) int) ([]step, bool) {
	return (&plan{ops: ops, across: true, home: home}).make()
}

func (p *plan) make() ([]step, bool) {
	ops, o := p.ops, p.ops[0]
	for _, q := range ops {
		if o.Kind == KindAllGather && len(q.Ins) != len(o.Ins) || o.Kind == KindReduceScatter && len(q.Outs) != len(o.Outs) {
			return nil, false
		}
	}
	switch o.Kind {
	case KindAllReduce, KindReduce:
		for i := range o.Ins {
			ins, outs := make([]source, 0, len(ops)), make([]source, 0, len(ops))
			for k := range ops {
				r := k
				if o.rootLast {
					r = (o.Root + 1 + k) % len(ops)
				}
				ins = append(ins, source{r, i, false})
				if o.Kind == KindAllReduce || r == o.Root {
					outs = append(outs, source{r, i, true})
				}
			}
			p.reduce(ins, outs)
		}
	case KindBroadcast:
		for r := range ops {
			for i := range o.Ins {
				if r != o.Root {
					p.copy(source{o.Root, i, false}, source{r, i, true})
				}
			}
		}
	case KindAllGather, KindGather:
		for to := range ops {
			if o.Kind == KindGather && to != o.Root {
				continue
			}
			for from := range ops {
				for i := range o.Ins {
					p.copy(source{from, i, false}, source{to, from*len(o.Ins) + i, true})
				}
			}
		}
	case KindReduceScatter:
		for to := range ops {
			for i := range o.Outs {
				var ins []source
				for from := range ops {
					ins = append(ins, source{from, to*len(o.Outs) + i, false})
				}
				p.reduceTo(to, ins, source{to, i, true})
			}
		}
	case KindAllToAll:
		for to := range ops {
			for from := range ops {
				p.copy(source{from, to, false}, source{to, from, true})
			}
		}
	case KindScatter:
		for to := range ops {
			p.copy(source{o.Root, to, false}, source{to, 0, true})
		}
	}
	if !p.misfit {
		p.byRow(!p.whole)
	}
	return p.steps, !p.misfit
}

type plan struct {
	ops    []*Operation
	last   int
	whole  bool
	words  bool
	across bool // between processes: each piece is copied in one step, and the ranks share the work of each sum, however small
	home   func(rank int) int
	steps  []step
	copies map[source]int // the steps of copies by their inputs
	misfit bool
}

func (p *plan) at(s source) *Piece {
	pieces := p.ops[s.rank].Ins
	if s.out {
		pieces = p.ops[s.rank].Outs
	}
	if s.piece >= len(pieces) {
		return nil
	}
	return &pieces[s.piece]
}

// fit checks that ins and outs exist and match, and returns the first of ins.
func (p *plan) fit(ins, outs []source) *Piece {
	first := p.at(ins[0])
	for _, list := range [][]source{ins, outs} {
		for _, s := range list {
			if piece := p.at(s); first == nil || piece == nil || !fits(*first, *piece) {
				p.misfit = true
				return nil
			}
		}
	}
	return first
}

// reduce joins ins into outs. Each rank does a share.
func (p *plan) reduce(ins, outs []source) {
	first := p.fit(ins, outs)
	if first == nil || first.N == 0 || len(ins) == 1 {
		return // the sum over one rank is its input
	}
	size := first.dtype.Size()
	ranks := len(p.ops)
	share := (first.N + ranks - 1) / ranks
	share = (share*size + cacheLine - 1) / cacheLine * cacheLine / size
	if !p.across && (first.N*size*ranks <= smallBytes || p.whole || p.words && p.splitsWord(outs, size)) {
		share = first.N
	}
	for r, from := 0, 0; from < first.N; r, from = r+1, from+share {
		s := p.join(r, ins, outs)
		s.from, s.n = from, min(share, first.N-from)
		switch {
		case p.across && len(outs) == 1:
			s.owner = outs[0].rank
		case p.across:
			s.owner = (r + ins[0].piece) % ranks // many small tensors have different owners
		case share == first.N:
			s.owner = p.last
		}
		p.steps = append(p.steps, s)
	}
}

// splitsWord reports whether a piece begins within a 32-bit word, so that shares of it would do so too.
func (p *plan) splitsWord(outs []source, size int) bool {
	return slices.ContainsFunc(outs, func(s source) bool {
		piece := p.at(s)
		return (piece.offset+piece.From)*size%4 != 0
	})
}

// reduceTo joins ins into out on the rank to.
func (p *plan) reduceTo(to int, ins []source, out source) {
	first := p.fit(ins, []source{out})
	if first == nil || first.N == 0 {
		return
	}
	s := p.join(to, ins, []source{out})
	s.n = first.N
	p.add(s, first.dtype)
}

func (p *plan) join(owner int, ins, outs []source) step {
	op := p.ops[0].Op
	s := step{owner: owner, op: reduceOps[op].kernel, ins: ins, outs: outs}
	if op == Avg {
		s.divisor = float64(len(ins))
	}
	if p.across && p.ops[0].ByNode {
		s.parts = p.byNode(ins)
	}
	return s
}

// byNode returns the pieces of each process.
func (p *plan) byNode(list []source) (parts [][]source) {
	at := map[int]int{}
	for _, s := range list {
		process := p.home(s.rank)
		i, known := at[process]
		if !known {
			i = len(parts)
			at[process] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], s)
	}
	return parts
}

// count returns how many parts are joined in the end, and part the inputs of one of them, which live in one process.
func (s *step) count() int {
	if s.parts != nil {
		return len(s.parts)
	}
	return len(s.ins)
}

func (s *step) part(i int) []source {
	if s.parts != nil {
		return s.parts[i]
	}
	return s.ins[i : i+1]
}

// copy copies a piece on the receiving rank. It does nothing if in and out are the same memory.
func (p *plan) copy(in, out source) {
	first := p.fit([]source{in}, []source{out})
	if first == nil || first.N == 0 {
		return
	}
	if t := p.at(out); !p.across && sameMemory(*first, *t) {
		return
	}
	if p.whole || p.across {
		if i, ok := p.copies[in]; ok {
			p.steps[i].outs = append(p.steps[i].outs, out)
			return
		}
		if p.copies == nil {
			p.copies = map[source]int{}
		}
		p.copies[in] = len(p.steps)
	}
	p.add(step{owner: out.rank, op: contract.CombineCopy, ins: []source{in}, outs: []source{out}, n: first.N}, first.dtype)
}

func (p *plan) add(s step, d core.DType) {
	if !p.across && s.n*d.Size()*len(s.ins) <= smallBytes/len(p.ops) {
		s.owner = p.last
	}
	p.steps = append(p.steps, s)
}

func sameMemory(a, b Piece) bool {
	return a.storage != nil && a.storage == b.storage && a.offset+a.From == b.offset+b.From && a.rows == b.rows
}

// moved returns the bytes that one rank reads from and writes to the memory of its peers.
func moved(o *Operation, rank, size int) int {
	// each is the number of pieces per rank. The pieces of the rank but are not counted.
	total := func(pieces []Piece, but int) int {
		n, each := 0, max(len(pieces)/size, 1)
		for i, p := range pieces {
			if but < 0 || i/each != but {
				n += p.bytes()
			}
		}
		return n
	}
	switch o.Kind {
	case KindAllReduce:
		return 2 * total(o.Ins, -1) * (size - 1) / size
	case KindBroadcast, KindReduce:
		if rank == o.Root {
			return total(o.Ins, -1) * (size - 1)
		}
		return total(o.Ins, -1)
	case KindAllGather, KindReduceScatter, KindAllToAll, KindGather, KindScatter:
		pieces := o.Outs
		if len(o.Ins) > len(pieces) {
			pieces = o.Ins
		}
		return total(pieces, rank)
	case KindSend, KindRecv:
		return total(o.Ins, -1) + total(o.Outs, -1)
	}
	return 0
}
