package collective

import (
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// AllReduce replaces t, on every rank, by the reduction of the ranks' tensors of one shape and dtype.
func (g *Group) AllReduce(t *core.Tensor, o ReduceOp) *Work {
	return g.AllReduceMany([]*core.Tensor{t}, o)
}

// AllReduceMany is [Group.AllReduce] of several tensors as one collective.
func (g *Group) AllReduceMany(ts []*core.Tensor, o ReduceOp) *Work {
	return g.start(&Operation{Kind: KindAllReduce, Op: o}, ts, ts)
}

// Broadcast replaces t, on every rank, by that of the rank root.
func (g *Group) Broadcast(t *core.Tensor, root int) *Work {
	return g.BroadcastMany([]*core.Tensor{t}, root)
}

// BroadcastMany is [Group.Broadcast] of several tensors as one collective.
func (g *Group) BroadcastMany(ts []*core.Tensor, root int) *Work {
	outs := ts
	if g.rank == root {
		outs = nil
	}
	return g.start(&Operation{Kind: KindBroadcast, Root: root}, ts, outs)
}

// Reduce replaces t, on the rank root, by the reduction of the ranks' tensors of one shape and dtype.
func (g *Group) Reduce(t *core.Tensor, root int, o ReduceOp) *Work {
	ts := []*core.Tensor{t}
	outs := ts
	if g.rank != root {
		outs = nil
	}
	return g.start(&Operation{Kind: KindReduce, Root: root, Op: o}, ts, outs)
}

// AllGather writes the in of rank r to outs[r], on every rank. The ranks' tensors may differ in size, and in may be the
// rank's own part of outs.
func (g *Group) AllGather(outs []*core.Tensor, in *core.Tensor) *Work {
	return g.start(&Operation{Kind: KindAllGather}, []*core.Tensor{in}, outs)
}

// AllGatherInto writes the ins of all ranks, of one size, one after the other to out.
func (g *Group) AllGatherInto(out, in *core.Tensor) *Work {
	return g.startPieces(&Operation{Kind: KindAllGather}, []*core.Tensor{in}, []*core.Tensor{out}, 1, g.Size())
}

// ReduceScatter writes the reduction of the ranks' ins[r] to the out of rank r. The sizes may differ from r to r.
func (g *Group) ReduceScatter(out *core.Tensor, ins []*core.Tensor, o ReduceOp) *Work {
	return g.start(&Operation{Kind: KindReduceScatter, Op: o}, ins, []*core.Tensor{out})
}

// ReduceScatterInto is [Group.ReduceScatter] of as many equal parts of in as there are ranks.
func (g *Group) ReduceScatterInto(out, in *core.Tensor, o ReduceOp) *Work {
	return g.startPieces(&Operation{Kind: KindReduceScatter, Op: o}, []*core.Tensor{in}, []*core.Tensor{out}, g.Size(), 1)
}

// AllGatherParts is [Group.AllGather] of several tensors as one collective: the ins[i] of all ranks, of sizes[i][r]
// elements, come one after the other to outs[i].
func (g *Group) AllGatherParts(outs, ins []*core.Tensor, sizes [][]int) *Work {
	return g.AllGatherMade(outs, ins, sizes, nil)
}

// AllGatherMade is [Group.AllGatherParts] of contiguous ins that nothing on their streams has written to since made: what the host
// cannot address then starts on its way at once, and does not wait for what was launched in the meantime. A nil made stands for all
// that was launched.
func (g *Group) AllGatherMade(outs, ins []*core.Tensor, sizes [][]int, made core.Event) *Work {
	o := &Operation{Kind: KindAllGather, made: made}
	cut, err := g.cutAll(o, outs, sizes)
	if err != nil {
		return failedWork(o.label(), err)
	}
	whole, err := wholes(o, ins)
	if err != nil {
		return failedWork(o.label(), err)
	}
	return g.run(o, whole, cut)
}

// ReduceScatterParts is [Group.ReduceScatter] of several tensors as one collective: of the reduction of the ranks' ins[i],
// rank r gets sizes[i][r] elements, which follow those of the ranks before it, in its outs[i].
func (g *Group) ReduceScatterParts(outs, ins []*core.Tensor, sizes [][]int, op ReduceOp) *Work {
	o := &Operation{Kind: KindReduceScatter, Op: op}
	cut, err := g.cutAll(o, ins, sizes)
	if err != nil {
		return failedWork(o.label(), err)
	}
	whole, err := wholes(o, outs)
	if err != nil {
		return failedWork(o.label(), err)
	}
	return g.run(o, cut, whole)
}

// AllToAll writes the ins[r] of rank q to the outs[q] of rank r.
func (g *Group) AllToAll(outs, ins []*core.Tensor) *Work {
	return g.start(&Operation{Kind: KindAllToAll}, ins, outs)
}

// AllToAllInto is [Group.AllToAll] of parts of in and out: inSizes[r] elements go to rank r, and outSizes[r] come from it. Nil
// sizes mean equal parts.
func (g *Group) AllToAllInto(out, in *core.Tensor, outSizes, inSizes []int) *Work {
	o := &Operation{Kind: KindAllToAll}
	ins, err := g.cut(o, in, inSizes)
	if err != nil {
		return failedWork(o.label(), err)
	}
	outs, err := g.cut(o, out, outSizes)
	if err != nil {
		return failedWork(o.label(), err)
	}
	return g.run(o, ins, outs)
}

// Gather writes the in of rank r to outs[r], on the rank root; the others' outs are not used.
func (g *Group) Gather(outs []*core.Tensor, in *core.Tensor, root int) *Work {
	if g.rank != root {
		outs = nil
	}
	return g.start(&Operation{Kind: KindGather, Root: root}, []*core.Tensor{in}, outs)
}

// Scatter writes ins[r] of the rank root to the out of rank r; the others' ins are not used.
func (g *Group) Scatter(out *core.Tensor, ins []*core.Tensor, root int) *Work {
	if g.rank != root {
		ins = nil
	}
	return g.start(&Operation{Kind: KindScatter, Root: root}, ins, []*core.Tensor{out})
}

// Send sends t to a rank, which calls [Group.Recv] with the same tag. Those of one pair and tag meet in the order of the calls.
func (g *Group) Send(t *core.Tensor, to, tag int) *Work {
	return g.start(&Operation{Kind: KindSend, Root: to, Tag: tag}, []*core.Tensor{t}, nil)
}

// Recv receives t from a rank, or from whoever sends first if from is -1: see [Work.Source].
func (g *Group) Recv(t *core.Tensor, from, tag int) *Work {
	return g.start(&Operation{Kind: KindRecv, Root: from, Tag: tag}, nil, []*core.Tensor{t})
}

// Source returns the rank that sent what a finished [Group.Recv] received.
func (w *Work) Source() int { return w.source }

// Exchange gives every rank the bytes of all, by rank. It waits for them.
func (g *Group) Exchange(payload []byte) ([][]byte, error) { return g.exchange("", payload) }

// StartExchange begins an exchange of bytes, or without any a barrier, that messages call note. See [Work.Payloads].
func (g *Group) StartExchange(note string, payload []byte) *Work {
	return g.begin(&Operation{Kind: KindExchange, Note: note, Payload: payload})
}

// Payloads returns the bytes of all ranks, of a finished exchange.
func (w *Work) Payloads() [][]byte { return w.payloads }

// Barrier waits until every rank has called it.
func (g *Group) Barrier() error {
	_, err := g.exchange("barrier", nil)
	return err
}

// MonitoredBarrier is [Group.Barrier] with a timeout of its own; the error names every rank that has not come.
func (g *Group) MonitoredBarrier(timeout time.Duration) error {
	_, err := g.WithTimeout(timeout).exchange("monitored_barrier", nil)
	return err
}

func (g *Group) exchange(note string, payload []byte) ([][]byte, error) {
	w := g.StartExchange(note, payload)
	if err := w.Wait(); err != nil {
		return nil, err
	}
	return w.payloads, nil
}

// start begins an operation over whole tensors.
func (g *Group) start(o *Operation, ins, outs []*core.Tensor) *Work {
	return g.startPieces(o, ins, outs, 1, 1)
}

// wholes returns each tensor as one piece.
func wholes(o *Operation, ts []*core.Tensor) ([]Piece, error) {
	list := make([]Piece, len(ts))
	for i, t := range ts {
		if err := t.Usable(o.name()); err != nil {
			return nil, err
		}
		list[i] = Piece{Tensor: t, N: t.Numel()}
	}
	return list, nil
}

// cutAll returns the parts of the tensors, by rank: first those of rank 0.
func (g *Group) cutAll(o *Operation, ts []*core.Tensor, sizes [][]int) ([]Piece, error) {
	if len(sizes) != len(ts) {
		return nil, core.Errorf(core.ValueError, o.name(), "got the sizes of the parts of %d tensors, want %d", len(sizes), len(ts))
	}
	list := make([]Piece, len(ts)*g.Size())
	for i, t := range ts {
		parts, err := g.cut(o, t, sizes[i])
		if err != nil {
			return nil, err
		}
		for r, p := range parts {
			list[r*len(ts)+i] = p
		}
	}
	return list, nil
}

// startPieces begins an operation over tensors that are cut into so many equal parts each.
func (g *Group) startPieces(o *Operation, ins, outs []*core.Tensor, inParts, outParts int) *Work {
	pieces := func(ts []*core.Tensor, parts int) (list []Piece, err error) {
		for _, t := range ts {
			if err := t.Usable(o.name()); err != nil {
				return nil, err
			}
			n := t.Numel()
			if n%parts != 0 {
				return nil, core.Errorf(core.ShapeError, o.name(), "%d elements, of shape %v, do not divide into %d equal parts", n, t.Shape(), parts)
			}
			for i := range parts {
				list = append(list, Piece{Tensor: t, From: i * (n / parts), N: n / parts})
			}
		}
		return list, nil
	}
	i, err := pieces(ins, inParts)
	if err != nil {
		return failedWork(o.label(), err)
	}
	u, err := pieces(outs, outParts)
	if err != nil {
		return failedWork(o.label(), err)
	}
	return g.run(o, i, u)
}

// cut returns the parts of t of the given sizes.
func (g *Group) cut(o *Operation, t *core.Tensor, sizes []int) ([]Piece, error) {
	if err := t.Usable(o.name()); err != nil {
		return nil, err
	}
	n, size := t.Numel(), g.Size()
	if sizes == nil {
		if n%size != 0 {
			return nil, core.Errorf(core.ShapeError, o.name(), "%d elements, of shape %v, do not divide into %d equal parts", n, t.Shape(), size)
		}
		sizes = make([]int, size)
		for i := range sizes {
			sizes[i] = n / size
		}
	}
	var list []Piece
	at := 0
	for _, s := range sizes {
		list = append(list, Piece{Tensor: t, From: at, N: s})
		at += s
		if s < 0 {
			at = -1
			break
		}
	}
	if len(sizes) != size || at != n {
		return nil, core.Errorf(core.ValueError, o.name(), "got parts of %v elements, want %d that make up the %d of shape %v", sizes, size, n, t.Shape())
	}
	return list, nil
}

// run begins an operation over pieces. A tensor that is not contiguous is replaced by one that is, and written back.
func (g *Group) run(o *Operation, ins, outs []Piece) *Work {
	fail := func(err error) *Work { return failedWork(o.label(), err) }
	if err := g.check(o, ins, outs); err != nil {
		return fail(err)
	}
	type copied struct{ from, to *core.Tensor }
	var back []copied
	var made []*core.Tensor
	contiguous := map[*core.Tensor]*core.Tensor{}
	var err error
	core.NoGrad(func() {
		for _, pieces := range []struct {
			list  []Piece
			write bool
		}{{outs, true}, {ins, false}} {
			for i := range pieces.list {
				p := &pieces.list[i]
				if p.Tensor.Contiguous() {
					continue
				}
				t := p.Tensor
				c := contiguous[t]
				if c == nil {
					c = op.Contiguous(t)
					if err = c.Err(); err != nil {
						return
					}
					contiguous[t] = c
					made = append(made, c)
					if pieces.write {
						back = append(back, copied{c, t})
					}
				}
				p.Tensor = c
			}
		}
	})
	if err != nil {
		return fail(err)
	}
	if len(made) > 0 {
		o.made = nil // what is contiguous only now
	}
	for _, list := range [][]Piece{ins, outs} {
		for i := range list {
			p := &list[i]
			p.storage, p.offset = p.Tensor.Storage(), p.Tensor.Offset()
		}
	}
	o.Ins, o.Outs = ins, outs
	w := g.begin(o)
	core.NoGrad(func() {
		for _, b := range back {
			r := op.CopyInPlace(b.to, b.from)
			if e := r.Err(); e != nil {
				err = e
				return
			}
			w.mu.Lock()
			w.after = core.CurrentContext().Stream(b.to.Device()).Record()
			w.mu.Unlock()
		}
	})
	for _, t := range made {
		t.Release()
	}
	if err != nil {
		return fail(err)
	}
	return w
}

// check returns an error for what one rank alone can know is wrong.
func (g *Group) check(o *Operation, ins, outs []Piece) error {
	name, size := o.name(), g.Size()
	switch {
	case o.Kind == KindSend || o.Kind == KindRecv:
		if o.Root == g.rank || o.Root >= size || o.Root < 0 && (o.Kind == KindSend || o.Root != anyone) {
			return core.Errorf(core.ValueError, name, "got the peer %d, want another rank than %d from 0 to %d", o.Root, g.rank, size-1)
		}
	case o.Kind.rooted() && (o.Root < 0 || o.Root >= size):
		return core.Errorf(core.ValueError, name, "got the root %d, want a rank from 0 to %d", o.Root, size-1)
	}
	want := func(what string, n int, pieces []Piece) error {
		if len(pieces) != n {
			return core.Errorf(core.ValueError, name, "got %d %s tensors or parts, want one for each of the %d ranks", len(pieces), what, n)
		}
		return nil
	}
	var err error
	switch {
	case o.Kind == KindAllGather:
		err = want("output", size*len(ins), outs)
	case o.Kind == KindGather && o.Root == g.rank:
		err = want("output", size, outs)
	case o.Kind == KindReduceScatter:
		err = want("input", size*len(outs), ins)
	case o.Kind == KindScatter && o.Root == g.rank:
		err = want("input", size, ins)
	case o.Kind == KindAllToAll:
		if err = want("output", size, outs); err == nil {
			err = want("input", size, ins)
		}
	}
	if err != nil || !o.Kind.reduces() {
		return err
	}
	for _, p := range ins {
		if err := o.Op.check(name, p.Tensor.DType()); err != nil {
			return err
		}
	}
	return nil
}

// begin numbers the operation, counts it and hands it to the backend.
func (g *Group) begin(o *Operation) *Work {
	o.Timeout, o.staged = g.timeout, g.countStaged
	if o.Kind != KindSend && o.Kind != KindRecv {
		o.Seq = g.seq.Add(1)
	}
	g.mu.Lock()
	g.stats.Calls[o.name()]++
	g.stats.Bytes[o.name()] += moved(o, g.rank, g.Size())
	g.mu.Unlock()
	return g.backend.Start(o)
}
