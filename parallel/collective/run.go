package collective

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// run starts an operation over pieces. Tensors that are neither contiguous nor used in their places (see [Group.InPlace]) are replaced by
// contiguous copies, and outputs are copied back. Inputs that outputs would overwrite are replaced by copies.
func (g *Group) run(o *Operation, ins, outs []Piece) (w *Work) {
	var c copies
	var err error
	core.NoGrad(func() {
		if err = g.check(o, ins, outs); err == nil {
			err = c.densify(g, o, ins, outs)
		}
		if err == nil {
			err = c.separate(o, g.rank, ins, outs)
		}
		if err == nil {
			if len(c.made) > 0 {
				o.made = nil // copies are newer than the event
			}
			o.Ins, o.Outs = ins, outs
			w = g.begin(o)
			err = c.writeBack(w)
		}
		for _, t := range c.made {
			t.Release()
		}
	})
	if err != nil {
		return failedWork(o.label(), err)
	}
	return w
}

// copies holds the tensors that replace others in a collective.
type copies struct {
	of   map[*core.Tensor]*core.Tensor
	made []*core.Tensor
	back [][2]*core.Tensor // copy and the tensor to write back to
}

// replace makes p a piece of a copy of its tensor.
func (c *copies) replace(p *Piece, write bool) error {
	t := p.Tensor
	if c.of == nil {
		c.of = map[*core.Tensor]*core.Tensor{}
	}
	dense := c.of[t]
	if dense == nil {
		if dense = op.Clone(t); dense.Err() != nil {
			return dense.Err()
		}
		c.of[t] = dense
		c.made = append(c.made, dense)
		if write {
			c.back = append(c.back, [2]*core.Tensor{dense, t})
		}
	}
	p.Tensor, p.rows = dense, rows{}
	p.locate()
	return nil
}

// densify makes the tensors of all pieces contiguous that the group does not use in their places.
func (c *copies) densify(g *Group, o *Operation, ins, outs []Piece) error {
	if err := o.checkStrided(outs); err != nil {
		return err
	}
	for k, list := range [][]Piece{outs, ins} {
		for i := range list {
			p := &list[i]
			if p.locate(); p.Tensor.Contiguous() {
				continue
			}
			if r, ok := g.rows(p.Tensor); ok && o.Kind.byPiece() && p.N == p.Tensor.Numel() {
				p.rows = r
				continue
			}
			if err := c.replace(p, k == 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// separate replaces inputs that outputs would overwrite before they are read.
func (c *copies) separate(o *Operation, rank int, ins, outs []Piece) error {
	shared, err := o.inputsToCopy(rank, ins, outs)
	if err != nil {
		return err
	}
	for _, i := range shared {
		if err := c.replace(&ins[i], false); err != nil {
			return err
		}
	}
	return nil
}

// writeBack copies the results to the tensors that copies replaced.
func (c *copies) writeBack(w *Work) error {
	for _, b := range c.back {
		if err := op.CopyInPlace(b[1], b[0]).Err(); err != nil {
			return err
		}
		w.mu.Lock()
		w.after = core.CurrentContext().Stream(b[1].Device()).Record()
		w.mu.Unlock()
	}
	return nil
}

// check returns the errors that one rank alone can find.
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

// begin numbers the operation, counts it and starts it.
func (g *Group) begin(o *Operation) *Work {
	if err := g.channel.left.Load(); err != nil {
		return failedWork(o.label(), *err)
	}
	o.Timeout, o.Purpose, o.group, o.channel, o.countStaged = g.timeout, g.purpose, g.name, g.channel.number, g.countStaged
	if o.Kind != KindSend && o.Kind != KindRecv {
		o.Seq = g.channel.seq.Add(1)
	}
	g.mu.Lock()
	g.stats.Calls[o.name()]++
	g.stats.Bytes[o.name()] += moved(o, g.rank, g.Size())
	g.mu.Unlock()
	return g.local.start(o)
}
