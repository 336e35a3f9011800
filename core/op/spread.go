package op

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// A Strategy is one way in which an op can work on parts of tensors without communication along one dimension of a mesh: how each of its
// tensors lies, and each of its results. The last result's placement is also that of further results.
type Strategy struct {
	In, Out []core.Placement
	Size    int // of the inputs' sharded dimension in the whole
	OutSize int // of the results' sharded dimension in the whole, if it is another; otherwise 0
	// Local is the op for this rank's parts, if it is another than for whole tensors. The rank has length elements from start on of the
	// sharded dimension.
	Local func(args []any, start, length int) []*core.Tensor
}

// ResultSize returns the size of the results' sharded dimension in the whole.
func (s Strategy) ResultSize() int {
	if s.OutSize != 0 {
		return s.OutSize
	}
	return s.Size
}

// A Rule says which strategies an op has for its arguments.
type Rule struct {
	// Strategies returns them, apart from that of inputs and results that are all replicated, which every op has.
	Strategies func(u *Use) []Strategy
	// Compose, if it is set, may return the op's results as those of other ops, for arguments with which these communicate less; otherwise
	// nil.
	Compose func(u *Use) []*core.Tensor
	// Changes says that Compose is for an op in place, whose first tensor it changes.
	Changes bool
	// Shape is one more than the index of the argument that is the shape of the result; 0 if there is none.
	Shape int
	// Rest says that a -1 in that shape stands for what is left of the elements.
	Rest bool
	// View, if it is set, returns the shape that the op gives its tensor, whose elements keep their order; nil if it has none.
	View func(u *Use) []int
	// Placed, if it is set, is the op for this rank's parts where it depends on where they lie. That of the first tensor lies from start on, in
	// each dimension, in one of the given shape. It returns nil for arguments for which the op is the ordinary one.
	Placed func(args []any, shape, start []int) []*core.Tensor
}

// A Use is the use of an op on distributed tensors.
type Use struct {
	Op      string
	Parts   core.Parts // of one of its tensors
	Args    []any
	Tensors []*core.Tensor // the tensors and numbers among the arguments, in order, those of lists and options included; nil where absent
	// Ranks is the number of ranks of the mesh.
	Ranks int
	// Sharded reports whether a tensor is sharded along a dimension, by any dimension of the mesh.
	Sharded func(t *core.Tensor, dim int) bool
}

// NewUse returns the use of an op with the given arguments.
func NewUse(a core.Application) *Use {
	u := &Use{Op: a.Op, Args: a.Args, Tensors: make([]*core.Tensor, 0, len(a.Args))}
	for _, a := range a.Args {
		if t, ok := a.(*core.Tensor); ok {
			u.Tensors = append(u.Tensors, t)
		} else {
			u.Tensors = append(u.Tensors, fields(a)...)
		}
	}
	return u
}

// RuleOf returns the rule of a row, or of the variant in place of a row whose name it is but for the "_" behind it; or nil.
func RuleOf(name string) *Rule {
	if r, ok := rules[name]; ok {
		return r
	}
	if base, ok := strings.CutSuffix(name, "_"); ok {
		if r, ok := rules[base]; ok {
			return r
		}
		name = base
	}
	if r := rows[name]; r != nil && (r.Elementwise != nil && r.Family != "loss" && r.Family != "reduction" || r.Family == "special") {
		return each
	}
	return nil
}

// Again returns the op's first result for other arguments.
func (u *Use) Again(args []any) *core.Tensor { return handOn(u.Parts, u.Op, args...) }

// divided reports whether a tensor is sharded along one of the dimensions.
func (u *Use) divided(t *core.Tensor, dims []int) bool {
	return t.Numel() > 0 && slices.ContainsFunc(dims, func(d int) bool { return u.Sharded(t, d) })
}

// argument returns argument i.
func argument[A any](u *Use, i int) A {
	a, _ := u.Args[i].(A)
	return a
}

// replicated returns the placements of inputs that are all replicated.
func (u *Use) replicated() []core.Placement { return make([]core.Placement, len(u.Tensors)) }

// dimOf returns a dimension of a tensor with n dimensions counted from 0, or -1 if there is no such dimension.
func dimOf(d, n int) int {
	if d < 0 {
		d += n
	}
	if d < 0 || d >= max(n, 1) {
		return -1
	}
	return d
}

// each is the rule of ops that work element by element and broadcast their inputs.
var each = notation("...->...")

// notation returns the rule of an op whose dimensions are written as in index notation, the inputs before "->" and the results behind it.
// A lower-case letter is a dimension along which the op can be divided: it occurs in the inputs and results that are then sharded along it,
// or in inputs alone, over which the op sums. Dimensions with a capital letter, and those behind the last letter, must be whole. "..." are
// leading dimensions, which are broadcast. Inputs behind the last one are like the last. A "+" marks a term that is added to the sums.
//
// An op is linear in the inputs marked with "*", if the others, but for the terms, are replicated.
func notation(s string) *Rule {
	left, right, ok := strings.Cut(s, "->")
	if !ok {
		panic("op: notation without ->: " + s)
	}
	ins, outs := parse(strings.Split(left, ",")), parse(strings.Split(right, ","))
	return &Rule{Strategies: func(u *Use) []Strategy { return indexed(u, ins, outs) }}
}

// index returns the strategies of an op in index notation: see [notation].
func index(u *Use, ins, outs []string) []Strategy { return indexed(u, parse(ins), parse(outs)) }

// A label names a dimension: a letter, or leadingLabel and the number of a leading dimension, counted from the last one of "...".
type label uint16

const leadingLabel label = 256

// term is what is written of one tensor.
type term struct {
	letters             string
	dots, added, linear bool // "..." in front, "+", "*"
}

func parse(list []string) []term {
	terms := make([]term, len(list))
	for i, s := range list {
		t := &terms[i]
		t.added, t.linear = strings.Contains(s, "+"), strings.Contains(s, "*")
		t.letters, t.dots = strings.CutPrefix(strings.Trim(s, "+*"), "...")
	}
	return terms
}

// dims returns how many dimensions the term names of a tensor with n dimensions, and how many of them are leading ones.
func (t term) dims(n int) (named, lead int) {
	if t.dots {
		lead = max(n-len(t.letters), 0)
	}
	return lead + len(t.letters), lead
}

// label returns the label of dimension d of a tensor with the given number of leading dimensions.
func (t term) label(d, lead int) label {
	if d < lead {
		return leadingLabel + label(lead-d)
	}
	return label(t.letters[d-lead])
}

// dim returns the dimension with a label, or -1.
func (t term) dim(l label, lead int) int {
	if l >= leadingLabel {
		if n := int(l - leadingLabel); t.dots && n <= lead {
			return lead - n
		}
		return -1
	}
	d := strings.IndexByte(t.letters, byte(l))
	if d < 0 {
		return -1
	}
	if t.dots {
		d += lead
	}
	return d
}

func indexed(u *Use, ins, outs []term) (list []Strategy) {
	type dimension struct {
		label label
		size  int
	}
	var buffer [8]dimension
	found, lead := buffer[:0], 0
	of := func(i int) term { return ins[min(i, len(ins)-1)] }
	for i, t := range u.Tensors {
		if t == nil || t.IsNumber() {
			continue
		}
		shape := t.Shape()
		named, own := of(i).dims(len(shape))
		if named > len(shape) {
			return nil
		}
		lead = max(lead, own)
		for d := range named {
			l := of(i).label(d, own)
			at := slices.IndexFunc(found, func(x dimension) bool { return x.label == l })
			if at < 0 {
				at, found = len(found), append(found, dimension{label: l})
			}
			found[at].size = max(found[at].size, shape[d])
			if shape[d] == 0 {
				found[at].size = 0
			}
		}
	}
	for i, t := range u.Tensors { // of shapes that do not fit, the op tells
		if t == nil || t.IsNumber() {
			continue
		}
		_, own := of(i).dims(t.Dim())
		for _, x := range found {
			if d := of(i).dim(x.label, own); d >= 0 && t.Shape()[d] != x.size && t.Shape()[d] != 1 {
				return nil
			}
		}
	}
	for _, x := range found {
		// Nothing is gained by dividing one row or none, but an op in place leaves its tensor where it is.
		if x.label >= 'A' && x.label <= 'Z' || x.size <= 1 && !strings.HasSuffix(u.Op, "_") {
			continue
		}
		places := make([]core.Placement, len(u.Tensors)+len(outs))
		s := Strategy{In: places[:len(u.Tensors):len(u.Tensors)], Out: places[len(u.Tensors):], Size: x.size}
		contracted := true
		for i, o := range outs {
			if d := o.dim(x.label, lead); d >= 0 {
				s.Out[i], contracted = core.Shard(d), false
			} else {
				s.Out[i] = core.Partial(core.Sums)
			}
		}
		for i, t := range u.Tensors {
			if t == nil || t.IsNumber() {
				continue
			}
			_, own := of(i).dims(t.Dim())
			if d := of(i).dim(x.label, own); d >= 0 && t.Shape()[d] == x.size {
				s.In[i] = core.Shard(d)
			} else if contracted && of(i).added {
				s.In[i] = core.Partial(core.Sums)
			}
		}
		list = append(list, s)
	}
	present := func(i int) bool { return u.Tensors[i] != nil && !u.Tensors[i].IsNumber() }
	// A product of a pending factor that is not much larger than the result is better of parts of it: later about as much would be reduced and
	// scattered, and each rank would have multiplied everything.
	reducible := func(shape []int, t term) bool {
		named, own := t.dims(len(shape))
		summed, result := false, 1
		for _, x := range found {
			in, out := t.dim(x.label, own) >= 0, outs[0].dim(x.label, lead) >= 0
			summed = summed || in && !out
			if out {
				result *= x.size
			}
		}
		return summed && 8*result >= core.Numel(shape[:named])
	}
	for i := range u.Tensors {
		if !present(i) || !of(i).linear || reducible(u.Tensors[i].Shape(), of(i)) {
			continue
		}
		s, alone := Strategy{In: u.replicated(), Out: []core.Placement{core.Partial(core.Sums)}}, true
		for j := range u.Tensors {
			if j == i || present(j) && of(j).added {
				s.In[j] = core.Partial(core.Sums)
			} else {
				alone = alone && !present(j)
			}
		}
		list = append(list, s)
		if alone { // the gradient of another factor would be a mean, too, but the ranks add up gradients
			list = append(list, ofMeans(s))
		}
	}
	return list
}

// ofMeans returns a strategy for pending sums as one for pending means.
func ofMeans(s Strategy) Strategy {
	with := func(list []core.Placement) []core.Placement {
		list = slices.Clone(list)
		for i, p := range list {
			if p == core.Partial(core.Sums) {
				list[i] = core.Partial(core.Means)
			}
		}
		return list
	}
	s.In, s.Out = with(s.In), with(s.Out)
	return s
}

// linear adds to a rule the strategies of pending sums and means, for ops of which the sum of results is the result of the sums.
func linear(r *Rule) *Rule {
	c := *r
	c.Strategies = func(u *Use) []Strategy {
		s := Strategy{In: u.replicated(), Out: []core.Placement{core.Partial(core.Sums)}}
		for i, t := range u.Tensors {
			if t == nil {
				continue
			}
			if t.IsNumber() || !t.DType().IsFloat() {
				return r.Strategies(u)
			}
			s.In[i] = core.Partial(core.Sums)
		}
		return append(r.Strategies(u), s, ofMeans(s))
	}
	return &c
}

// dims returns the rule of an op on one tensor. to returns for each dimension of the tensor that of the results with the same elements in
// the same order, or -1 if the op works along it.
func dims(to func(u *Use, shape []int) []int) *Rule {
	return &Rule{Strategies: func(u *Use) (list []Strategy) {
		t := u.Tensors[0]
		for d, e := range to(u, t.Shape()) {
			if e < 0 || t.Shape()[d] <= 1 {
				continue
			}
			s := Strategy{In: u.replicated(), Out: []core.Placement{core.Shard(e)}, Size: t.Shape()[d]}
			s.In[0] = core.Shard(d)
			list = append(list, s)
		}
		return list
	}}
}

// same returns 0 to n-1.
func same(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// worksAlong is the rule of an op whose results have the dimensions of its tensor, and which works along the dimensions that the arguments of
// the given indices say: a number, a list, or none for all.
func worksAlong(indices ...int) *Rule {
	return dims(func(u *Use, shape []int) []int {
		to := same(len(shape))
		for _, i := range indices {
			for _, d := range reduced(u, i, len(shape)) {
				to[d] = -1
			}
		}
		return to
	})
}

// reduced returns the dimensions that argument i says, of n: all for an empty list.
func reduced(u *Use, i, n int) (list []int) {
	switch a := u.Args[i].(type) {
	case int:
		list = []int{a}
	case *int:
		if a != nil {
			list = []int{*a}
		}
	case []int:
		list = a
	}
	if len(list) == 0 {
		return same(n)
	}
	out := make([]int, 0, len(list))
	for _, d := range list {
		if d = dimOf(d, n); d >= 0 && d < n {
			out = append(out, d)
		}
	}
	return out
}

// without is the rule of an op that removes the dimensions that argument i says, or keeps them with size 1 if argument keep, an index or -1,
// says so.
func without(i int, keep func(u *Use) bool) *Rule {
	return dims(func(u *Use, shape []int) []int {
		gone := reduced(u, i, len(shape))
		to, at := make([]int, len(shape)), 0
		for d := range shape {
			if to[d] = at; slices.Contains(gone, d) {
				to[d] = -1
				if !keep(u) {
					continue
				}
			}
			at++
		}
		return to
	})
}

func flag(i int) func(u *Use) bool { return func(u *Use) bool { return argument[bool](u, i) } }

// combining adds to [without] the strategies in which the dimensions that go are sharded, and the results pending.
func combining(r *Rule, i int, c core.Combination) *Rule {
	out := *r
	out.Strategies = func(u *Use) []Strategy {
		list := r.Strategies(u)
		t := u.Tensors[0]
		for _, d := range reduced(u, i, t.Dim()) {
			// Of no elements there is no maximum, and fewer than the square of the ranks may leave a rank without one.
			n := t.Shape()[d]
			if n <= 1 || c != core.Sums && n%u.Ranks != 0 && n < u.Ranks*u.Ranks {
				continue
			}
			s := Strategy{In: u.replicated(), Out: []core.Placement{core.Partial(c)}}
			s.In[0] = core.Shard(d)
			list = append(list, s)
		}
		return list
	}
	return &out
}

// last is the rule of an op that works along the last n dimensions.
func last(n int) *Rule {
	return dims(func(u *Use, shape []int) []int {
		to := same(len(shape))
		for d := max(len(shape)-n, 0); d < len(shape); d++ {
			to[d] = -1
		}
		return to
	})
}

// SizesFor returns a shape with its -1 replaced, for a tensor of numel elements; or nil.
func SizesFor(shape []int, numel int) []int {
	out := slices.Clone(shape)
	if i := slices.Index(out, -1); i >= 0 {
		out[i] = 1
		n := core.Numel(out)
		if n == 0 || numel%n != 0 {
			return nil
		}
		out[i] = numel / n
	}
	if core.Numel(out) != numel {
		return nil
	}
	return out
}

func (s Strategy) String() string { return fmt.Sprintf("%v -> %v", s.In, s.Out) }
