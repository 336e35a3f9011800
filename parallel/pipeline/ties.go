package pipeline

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// A tiedParam is a parameter that stages on several devices share, such as the weight of an embedding and of the output layer.
// The owner is on the device of the first such stage. The other devices have copies, whose gradients are added to the owner's at
// the end of a step.
type tiedParam struct {
	owner  *core.Tensor
	copies []*tieCopy
}

type tieCopy struct {
	tensor  *core.Tensor
	source  *core.Storage // the owner's storage that was copied
	version uint32
}

// Tie returns the tensor that a stage uses for t. This is t itself if t is on the stage's device. Otherwise it is a copy that is
// updated at the beginning of every step, and whose gradient is added to t's.
func (x *Executor) Tie(t *core.Tensor, stage int) (*core.Tensor, error) {
	if err := x.acquire(notAStep); err != nil {
		return nil, err
	}
	defer x.current.Store(nil)
	dev := x.Device(stage)
	if err := t.Usable("pipeline"); err != nil {
		return nil, err
	}
	if t.Device() == dev {
		return t, nil
	}
	i := slices.IndexFunc(x.tied, func(y *tiedParam) bool { return y.owner == t })
	if i < 0 {
		i = len(x.tied)
		x.tied = append(x.tied, &tiedParam{owner: t})
	}
	y := x.tied[i]
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

// refresh copies the owner's values to the copies if they have changed.
func (y *tiedParam) refresh(l *copier) error {
	var err error
	for _, c := range y.copies {
		if want := y.owner.RequiresGrad(); c.tensor.RequiresGrad() != want { // the owner was frozen or unfrozen
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

// addGrads adds the copies' gradients to the owner's.
func (y *tiedParam) addGrads(l *copier) error {
	for _, c := range y.copies {
		g := c.tensor.Grad()
		if g == nil {
			continue
		}
		var err error
		core.NoGrad(func() {
			core.WithCategory(core.Gradient, func() {
				var p *transfer
				if p, err = l.send(g, y.owner.Device(), false); err != nil {
					return
				}
				if old := y.owner.Grad(); old != nil {
					err = op.AddInPlace(old, p.tensor).Err()
					p.release()
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

// dropGrads drops the copies' gradients after a failed step.
func (y *tiedParam) dropGrads() {
	for _, c := range y.copies {
		if c.tensor.Grad() != nil {
			c.tensor.SetGrad(nil)
		}
	}
}

func (y *tiedParam) release() {
	for _, c := range y.copies {
		c.tensor.Release()
	}
	y.copies = nil
}
