package core

import (
	"math"
	"slices"
)

// A recordedCall is a call as it will be launched again.
type recordedCall struct {
	call   Call
	places []place // of the outputs, then of the inputs
	// random is the generator whose numbers the call draws, or -1, and by how many counters they lie behind its state at the start.
	random int
	behind uint64
	replay func(c *Call) error // [Call.OnReplay]
}

// A place is what an operand lies in: a piece or an external storage, by its index; -1 for neither.
type place struct{ piece, external int }

// Add records a call that is about to be launched.
func (r *Recording) Add(c *Call) {
	if !r.on(c.stream) {
		return
	}
	switch {
	case c.Fn != nil || c.Mark != nil || c.Own != nil:
		r.Refuse("%s runs on the host, and only kernels are replayed", c.Op)
		return
	case c.crossStream || len(c.waits) > 0:
		r.Refuse("%s uses memory that another stream uses", c.Op)
		return
	case c.shared:
		r.Refuse("%s uses memory that is shared with code outside the engine", c.Op)
		return
	case c.OnReplay == nil && (c.OnLaunch != nil || c.OnSkip != nil || c.OnCancel != nil):
		r.Refuse("%s is launched anew each time", c.Op)
		return
	}
	x := &recordedCall{random: -1, replay: c.OnReplay}
	k := &x.call
	k.Kernel, k.Op, k.Work, k.InPlace, k.Overwrites = c.Kernel, c.Op, c.Work, c.InPlace, c.Overwrites
	k.Ints, k.Floats = slices.Clone(c.Ints), slices.Clone(c.Floats)
	k.Outs, k.Ins = r.operands(x, c.Outs, c.InPlace), r.operands(x, c.Ins, false)
	r.events = append(r.events, recordedEvent{call: x})
}

// operands returns copies of operands, and appends their places.
func (r *Recording) operands(x *recordedCall, list []Operand, changed bool) []Operand {
	list = slices.Clone(list)
	for i := range list {
		o := &list[i]
		o.Shape, o.Strides = slices.Clone(o.Shape), slices.Clone(o.Strides)
		p := place{-1, -1}
		switch s := o.storage; {
		case s == nil:
			if o.present && !o.IsNumber {
				r.Refuse("%s uses memory that belongs to no tensor", x.call.Op)
			}
		default:
			p = r.placeOf(o, changed)
		}
		x.places = append(x.places, p)
	}
	return list
}

// placeOf returns the place of an operand in memory.
func (r *Recording) placeOf(o *Operand, changed bool) place {
	if i, ok := r.live[o.Memory.key()]; ok {
		p := &r.pieces[i]
		p.storage, p.epoch, p.size = o.storage, o.epoch, o.storage.Size()
		return place{i, -1}
	}
	i, ok := r.externalOf[o.storage]
	if !ok || r.externals[i].epoch != o.epoch {
		i = len(r.externals)
		r.externalOf[o.storage] = i
		r.externals = append(r.externals, recordedExternal{storage: o.storage, epoch: o.epoch})
	}
	r.externals[i].changed = r.externals[i].changed || changed
	return place{-1, i}
}

// A recordedGenerator is a generator whose numbers were drawn in a recording.
type recordedGenerator struct {
	generator     *Generator
	seed, start   uint64 // its state at the first use
	lowest, limit uint64 // counters that were drawn
	end           uint64
}

// noteDraw records that a generator's state is about to become offset, after the counters from its present offset on were drawn, or was set.
// The caller holds the generator's mutex.
func (r *Recording) noteDraw(g *Generator, seed, offset uint64, drawn bool) {
	i := slices.IndexFunc(r.generators, func(x *recordedGenerator) bool { return x.generator == g })
	if i < 0 {
		i = len(r.generators)
		r.generators = append(r.generators, &recordedGenerator{generator: g, seed: g.seed, start: g.offset, lowest: g.offset, limit: g.offset, end: g.offset})
	}
	x := r.generators[i]
	if seed != x.seed || offset < x.start { // other states come from the step itself, as in checkpointing, and move with it
		r.Refuse(seedsInStep)
	}
	if x.end = offset; drawn {
		x.lowest, x.limit = min(x.lowest, g.offset), max(x.limit, offset)
	}
}

const seedsInStep = "the step seeds a generator, so it would draw the same numbers each time"

var seeded = map[KernelID]int{}

// DeclareSeeded says that seed and offset of the generator are integer attributes number at and at+1 of a kernel's calls. It is called when
// packages are initialised.
func DeclareSeeded(k KernelID, at int) { seeded[k] = at }

// findRandom finds the generator of each call that draws random numbers.
func (r *Recording) findRandom() {
	for _, e := range r.events {
		if e.call == nil {
			continue
		}
		x := e.call
		at, ok := seeded[x.call.Kernel]
		if !ok || at+1 >= len(x.call.Ints) {
			continue
		}
		seed, offset := uint64(x.call.Ints[at]), uint64(x.call.Ints[at+1])
		for i, g := range r.generators {
			if g.seed != seed || offset < g.lowest || offset >= g.limit {
				continue
			}
			if x.random >= 0 {
				r.Refuse("two generators draw the same numbers, so it is not known which one %s uses: seed them differently", x.call.Op)
			}
			x.random, x.behind = i, offset-g.start
		}
	}
}

// Matches returns nil if the recordings have the same calls on the same memory, with attributes that differ only where replays renew them.
// Otherwise it says what differs. Both have ended.
func (r *Recording) Matches(o *Recording) error {
	differ := func(format string, args ...any) error { return Errorf(StateError, "replay", format, args...) }
	if len(r.generators) != len(o.generators) || len(r.leaves) != len(o.leaves) || len(r.pieces) != len(o.pieces) {
		return differ("two steps differ in what they allocate, draw or differentiate")
	}
	for i, g := range r.generators {
		if x := o.generators[i]; g.generator != x.generator || g.end-g.start != x.end-x.start {
			return differ("two steps draw from different generators")
		}
	}
	calls, others := r.calls(), o.calls()
	for i, x := range calls {
		if i >= len(others) {
			return differ("the step has %d calls, and the one before it %d: the first to differ is %s", len(calls), len(others), x.call.Op)
		}
		if err := r.matches(x, o, others[i]); err != nil {
			return err
		}
	}
	if len(others) > len(calls) {
		return differ("the step has %d calls, and the one before it %d: the first to differ is %s", len(calls), len(others), others[len(calls)].call.Op)
	}
	return nil
}

// calls returns the recorded calls.
func (r *Recording) calls() (list []*recordedCall) {
	for _, e := range r.events {
		if e.call != nil {
			list = append(list, e.call)
		}
	}
	return list
}

// matches returns what differs between a call and the one in its place in another recording.
func (r *Recording) matches(x *recordedCall, o *Recording, y *recordedCall) error {
	differ := func(format string, args ...any) error {
		return Errorf(StateError, "replay", "%s: "+format, append([]any{x.call.Op}, args...)...)
	}
	a, b := &x.call, &y.call
	if a.Kernel != b.Kernel || len(a.Outs) != len(b.Outs) || len(a.Ins) != len(b.Ins) || a.InPlace != b.InPlace {
		return differ("the step before called %s in its place", b.Op)
	}
	if x.random != y.random || x.behind != y.behind {
		return differ("it draws other random numbers than the step before")
	}
	ints, floats := slices.Clone(a.Ints), a.Floats
	if x.random >= 0 && len(ints) == len(b.Ints) {
		at := seeded[a.Kernel]
		copy(ints[at:at+2], b.Ints[at:at+2])
	}
	if !slices.Equal(ints, b.Ints) {
		return differ("its attributes change from step to step, got %v and before %v", a.Ints, b.Ints)
	}
	same := func(u, v float64) bool { return math.Float64bits(u) == math.Float64bits(v) }
	if x.replay == nil && !slices.EqualFunc(floats, b.Floats, same) {
		return differ("its numbers change from step to step, got %v and before %v", floats, b.Floats)
	}
	for i, p := range x.places {
		u, v, q := operandOf(a, i), operandOf(b, i), y.places[i]
		if u.present != v.present || u.DType != v.DType || u.IsNumber != v.IsNumber || u.Offset != v.Offset ||
			!slices.Equal(u.Shape, v.Shape) || !slices.Equal(u.Strides, v.Strides) {
			return differ("its operands change from step to step, got %v%v and before %v%v", u.DType, u.Shape, v.DType, v.Shape)
		}
		if u.IsNumber && (u.Number.Int != v.Number.Int || !same(u.Number.Float, v.Number.Float)) {
			return differ("a number changes from step to step, got %v and before %v", u.Number, v.Number)
		}
		if p.piece != q.piece || (p.external < 0) != (q.external < 0) {
			return differ("it uses other memory than in the step before")
		}
		if p.external >= 0 && (r.externals[p.external].storage != o.externals[q.external].storage || r.externals[p.external].epoch != o.externals[q.external].epoch) {
			return differ("it uses a tensor of shape %v that was made by the step before, or between the steps: pass it to the function, or keep it in one tensor and change it in place", u.Shape)
		}
	}
	return nil
}

// operandOf returns operand i of a call, of the outputs and then the inputs.
func operandOf(c *Call, i int) *Operand {
	if i < len(c.Outs) {
		return &c.Outs[i]
	}
	return &c.Ins[i-len(c.Outs)]
}
