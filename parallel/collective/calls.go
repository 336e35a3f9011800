package collective

import (
	"time"

	"github.com/plait-ml/plait/core"
)

// AllReduce replaces t on every rank by the reduction of all ranks' tensors, which must have one shape and dtype.
func (g *Group) AllReduce(t *core.Tensor, o ReduceOp) *Work {
	return g.AllReduceMany([]*core.Tensor{t}, o)
}

// AllReduceMany is [Group.AllReduce] of several tensors as one collective.
func (g *Group) AllReduceMany(ts []*core.Tensor, o ReduceOp) *Work {
	return g.start(&Operation{Kind: KindAllReduce, Op: o}, ts, ts)
}

// AllReduceByNode is [Group.AllReduceMany] with another order: each process joins the tensors of its ranks, in rank order, and then the results
// of the processes are joined, in their order. So a process sends 2s(p-1)/p bytes of s over p processes, however many ranks it has. The bits
// depend on which ranks share a process; halves are rounded twice.
func (g *Group) AllReduceByNode(ts []*core.Tensor, o ReduceOp) *Work {
	return g.start(&Operation{Kind: KindAllReduce, Op: o, ByNode: true}, ts, ts)
}

// Broadcast replaces t on every rank by the t of the rank root.
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

// Reduce replaces t on the rank root by the reduction of all ranks' tensors, which must have one shape and dtype.
func (g *Group) Reduce(t *core.Tensor, root int, o ReduceOp) *Work {
	ts := []*core.Tensor{t}
	outs := ts
	if g.rank != root {
		outs = nil
	}
	return g.start(&Operation{Kind: KindReduce, Root: root, Op: o}, ts, outs)
}

// AllGather writes the in of rank r to outs[r], on every rank. The sizes may differ between ranks. in may share the memory of the rank's
// own entry of outs.
func (g *Group) AllGather(outs []*core.Tensor, in *core.Tensor) *Work {
	return g.start(&Operation{Kind: KindAllGather}, []*core.Tensor{in}, outs)
}

// AllGatherInto concatenates the ins of all ranks, which must have one size, in out.
func (g *Group) AllGatherInto(out, in *core.Tensor) *Work {
	return g.startPieces(&Operation{Kind: KindAllGather}, []*core.Tensor{in}, []*core.Tensor{out}, 1, g.Size())
}

// ReduceScatter writes the reduction of all ranks' ins[r] to the out of rank r. The sizes may differ between values of r.
func (g *Group) ReduceScatter(out *core.Tensor, ins []*core.Tensor, o ReduceOp) *Work {
	return g.start(&Operation{Kind: KindReduceScatter, Op: o}, ins, []*core.Tensor{out})
}

// ReduceScatterInto is [Group.ReduceScatter] with in split into one equal part per rank.
func (g *Group) ReduceScatterInto(out, in *core.Tensor, o ReduceOp) *Work {
	return g.startPieces(&Operation{Kind: KindReduceScatter, Op: o}, []*core.Tensor{in}, []*core.Tensor{out}, g.Size(), 1)
}

// AllGatherParts is [Group.AllGather] of several tensors as one collective. outs[i] becomes the concatenation of all ranks' ins[i], where
// rank r's has sizes[i][r] elements.
func (g *Group) AllGatherParts(outs, ins []*core.Tensor, sizes [][]int) *Work {
	return g.AllGatherMade(outs, ins, sizes, nil)
}

// AllGatherMade is [Group.AllGatherParts] for contiguous ins that nothing on their streams has written since the event made. A GPU's copies
// to the host then start at once and do not wait for later work. A nil made means everything launched so far.
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

// ReduceScatterParts is [Group.ReduceScatter] of several tensors as one collective. The reduction of all ranks' ins[i] is split in rank
// order: rank r gets sizes[i][r] elements in its outs[i].
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

// AllToAllInto is [Group.AllToAll] with in and out split into parts: inSizes[r] elements go to rank r, and outSizes[r] elements come from
// it. Nil sizes mean equal parts.
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

// Gather writes the in of rank r to outs[r] on the rank root. outs is ignored on other ranks.
func (g *Group) Gather(outs []*core.Tensor, in *core.Tensor, root int) *Work {
	if g.rank != root {
		outs = nil
	}
	return g.start(&Operation{Kind: KindGather, Root: root}, []*core.Tensor{in}, outs)
}

// Scatter writes ins[r] of the rank root to the out of rank r. ins is ignored on other ranks.
func (g *Group) Scatter(out *core.Tensor, ins []*core.Tensor, root int) *Work {
	if g.rank != root {
		ins = nil
	}
	return g.start(&Operation{Kind: KindScatter, Root: root}, ins, []*core.Tensor{out})
}

// Send sends t to a rank that calls [Group.Recv] with the same tag. Sends and receives of one pair and tag match in the order of the calls.
func (g *Group) Send(t *core.Tensor, to, tag int) *Work {
	return g.start(&Operation{Kind: KindSend, Root: to, Tag: tag}, []*core.Tensor{t}, nil)
}

// Recv receives t from a rank, or from the first sender if from is -1: see [Work.Source].
func (g *Group) Recv(t *core.Tensor, from, tag int) *Work {
	return g.start(&Operation{Kind: KindRecv, Root: from, Tag: tag}, nil, []*core.Tensor{t})
}

// Source returns the rank that sent the tensor of a finished [Group.Recv].
func (w *Work) Source() int { return w.source }

// Exchange returns the payloads of all ranks, by rank. It blocks.
func (g *Group) Exchange(payload []byte) ([][]byte, error) { return g.exchange("", payload) }

// StartExchange starts an exchange of bytes, or without a payload a barrier. note is its name in messages. See [Work.Payloads].
func (g *Group) StartExchange(note string, payload []byte) *Work {
	return g.begin(&Operation{Kind: KindExchange, Note: note, Payload: payload})
}

// Payloads returns the payloads of all ranks after a finished exchange.
func (w *Work) Payloads() [][]byte { return w.payloads }

// Barrier waits until every rank has called it.
func (g *Group) Barrier() error {
	_, err := g.exchange("barrier", nil)
	return err
}

// MonitoredBarrier is [Group.Barrier] with its own timeout. The error names every rank that has not arrived.
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

// wholes returns one piece per tensor.
func wholes(o *Operation, ts []*core.Tensor) ([]Piece, error) {
	list := make([]Piece, len(ts))
	for i, t := range ts {
		t, _, err := o.usable(t)
		if err != nil {
			return nil, err
		}
		list[i] = Piece{Tensor: t, N: t.Numel()}
	}
	return list, nil
}

// cutAll splits each tensor by rank. It returns the parts of rank 0 first.
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

// startPieces begins an operation over tensors that are split into equal parts.
func (g *Group) startPieces(o *Operation, ins, outs []*core.Tensor, inParts, outParts int) *Work {
	pieces := func(ts []*core.Tensor, parts int) (list []Piece, err error) {
		list = make([]Piece, 0, len(ts)*parts)
		for _, t := range ts {
			moved, scale, err := o.usable(t)
			if err != nil {
				return nil, err
			}
			n := t.Numel()
			if n%parts != 0 {
				return nil, core.Errorf(core.ShapeError, o.name(), "%d elements, of shape %v, do not divide into %d equal parts", n, t.Shape(), parts)
			}
			for i := range parts {
				list = append(list, Piece{Tensor: moved, From: scale * i * (n / parts), N: scale * (n / parts)})
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

// cut splits t into parts of the given sizes.
func (g *Group) cut(o *Operation, t *core.Tensor, sizes []int) ([]Piece, error) {
	moved, scale, err := o.usable(t)
	if err != nil {
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
		list = append(list, Piece{Tensor: moved, From: scale * at, N: scale * s})
		at += s
		if s < 0 {
			at = -1
			break
		}
	}
	if len(sizes) != size || at != n {
		return nil, core.Errorf(core.ValueError, o.name(), "got parts of %v elements, want %d parts with a total of %d elements, for shape %v", sizes, size, n, t.Shape())
	}
	return list, nil
}
