package pipeline

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A tie is a tensor that stages on several devices share, such as the weight of an embedding and of the last layer. It is on the
// device of the first of them; the others have copies, whose gradients are added to its own at the end of a step.
type tie struct {
	owner  *core.Tensor
	copies []*tieCopy
}

type tieCopy struct {
	tensor  *core.Tensor
	source  *core.Storage // what it was copied from
	version uint32
}

// Tie returns the tensor that a stage has to use in place of t: t itself if it is on the stage's device, and otherwise a copy that
// begins every step with t's values and whose gradient ends up in t's.
func (x *Executor) Tie(t *core.Tensor, stage int) (*core.Tensor, error) {
	if err := x.take(busy); err != nil {
		return nil, err
	}
	defer x.open.Store(nil)
	dev := x.Device(stage)
	if err := t.Usable("pipeline"); err != nil {
		return nil, err
	}
	if t.Device() == dev {
		return t, nil
	}
	i := slices.IndexFunc(x.ties, func(y *tie) bool { return y.owner == t })
	if i < 0 {
		i = len(x.ties)
		x.ties = append(x.ties, &tie{owner: t})
	}
	y := x.ties[i]
	for _, c := range y.copies {
		if c.tensor.Device() == dev {
			return c.tensor, nil
		}
	}
	c := &tieCopy{source: t.Storage(), version: t.Storage().Version()}
	core.NoGrad(func() {
		core.WithCategory(core.Parameter, func() { c.tensor = op.ToDevice(t.Detach(), dev).Keep() })
	})
	if err := c.tensor.Err(); err != nil {
		return nil, err
	}
	if t.RequiresGrad() {
		c.tensor.SetRequiresGrad(true)
	}
	y.copies = append(y.copies, c)
	return c.tensor, nil
}

// refresh gives the copies the owner's values, if it has changed.
func (y *tie) refresh(l *lines) error {
	var err error
	for _, c := range y.copies {
		if want := y.owner.RequiresGrad(); c.tensor.RequiresGrad() != want { // it may have been frozen
			c.tensor.SetRequiresGrad(want)
		}
		s := y.owner.Storage()
		if c.source == s && c.version == s.Version() {
			continue
		}
		core.Tidy(func() {
			core.NoGrad(func() {
				value := op.Contiguous(y.owner.Detach())
				if err = value.Err(); err == nil {
					err = l.carrier.Copy(c.tensor.Detach(), value)
				}
			})
		})
		if err != nil {
			return err
		}
		c.source, c.version = s, s.Version()
	}
	return nil
}

// collect adds the copies' gradients to the owner's.
func (y *tie) collect(l *lines) error {
	for _, c := range y.copies {
		g := c.tensor.Grad()
		if g == nil {
			continue
		}
		var err error
		core.NoGrad(func() {
			core.WithCategory(core.Gradient, func() {
				var p *parcel
				if p, err = l.send(g, y.owner.Device(), false); err != nil {
					return
				}
				if old := y.owner.Grad(); old != nil {
					err = op.AddInPlace(old, p.tensor).Err()
					p.drop()
					return
				}
				y.owner.SetGrad(p.take())
			})
		})
		if err != nil {
			return err
		}
		c.tensor.SetGrad(nil)
	}
	return nil
}

// forget drops the copies' gradients, of a step that failed.
func (y *tie) forget() {
	for _, c := range y.copies {
		if c.tensor.Grad() != nil {
			c.tensor.SetGrad(nil)
		}
	}
}

func (y *tie) release() {
	for _, c := range y.copies {
		c.tensor.Release()
	}
	y.copies = nil
}
