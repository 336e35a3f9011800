package fsdp

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/meta"
	"github.com/plait-ml/plait/core/op"
)

// A parameter is one tensor of a unit.
type parameter struct {
	unit   *Unit
	name   string
	tensor *core.Tensor // the module's: the shard, or while the unit is open the full parameter
	other  *core.Tensor // the one of the two that tensor is not
	shape  []int        // of the full parameter
	rows   []int        // rank r has the rows [rows[r], rows[r+1])
	sizes  []int        // elements by rank

	gradient  *core.Division
	known     contents     // of the shard, see [Unit.recordShards]
	gathered  uint32       // the version of the shard that the full parameter was last gathered from
	second    *core.Tensor // with [Options.Partial], this rank's part between forward and backward
	partial   *core.Tensor // the gradient so far, summed over the shard group but not over the replicas
	local     bool         // the gradient of one that is not divided has parts that were not reduced
	before    *core.Tensor // and this one, which was, waits for them
	waits     bool         // its gradient comes in this backward pass
	absent    bool         // none came in the last one
	shownGrad uint32       // and that of its gradient
	shown     uint32       // the version of the full parameter when it was summoned
	lent      *core.Tensor // the full parameter, while a copy on another device is shown
	had       bool         // the shard had a gradient before it
	remove    func()       // takes the hook on the full parameter away
}

// rowsOf returns how n ranks divide rows.
func rowsOf(rows, n int) []int {
	each := (rows + n - 1) / n
	list := make([]int, n+1)
	for r := range list {
		list[r] = min(r*each, rows)
	}
	return list
}

// divide sets how ranks share a parameter of the given shape. One without dimensions is one row.
func (p *parameter) divide(shape []int, ranks int) {
	p.shape = slices.Clone(shape)
	rows, width := 1, 1
	if len(shape) > 0 {
		rows, width = shape[0], core.Numel(shape[1:])
	}
	p.rows = rowsOf(rows, ranks)
	p.sizes = sizesOf(p.rows, width)
}

func sizesOf(rows []int, width int) []int {
	list := make([]int, len(rows)-1)
	for r := range list {
		list[r] = (rows[r+1] - rows[r]) * width
	}
	return list
}

// shapeOf returns the shape of so many rows of the parameter.
func (p *parameter) shapeOf(rows int) []int {
	if len(p.shape) == 0 {
		if rows == 1 {
			return []int{}
		}
		return []int{0}
	}
	s := slices.Clone(p.shape)
	s[0] = rows
	return s
}

// part returns rows [from, to) of a full tensor of the parameter's shape, as a view.
func (p *parameter) part(full *core.Tensor, from, to int) *core.Tensor {
	if len(p.shape) == 0 {
		return op.Narrow(op.Reshape(full, 1), 0, 0, to-from)
	}
	return op.Narrow(full, 0, from, to-from)
}

// mine returns this rank's rows of a full tensor, as a view in the shape of the shard.
func (p *parameter) mine(full *core.Tensor) *core.Tensor {
	r := p.unit.rank()
	v := p.part(full, p.rows[r], p.rows[r+1])
	return op.Reshape(v, p.shapeOf(p.rows[r+1]-p.rows[r])...)
}

// shard returns the tensor with this rank's rows, wherever it is.
func (p *parameter) shard() *core.Tensor {
	if p.unit.open {
		return p.other
	}
	return p.tensor
}

// full returns the full tensor, whose storage may be empty.
func (p *parameter) full() *core.Tensor {
	if p.unit.open || p.unit.replicated() {
		return p.tensor
	}
	return p.other
}

// split makes the module's tensor, so far the full parameter, the shard, and the full one an emptied tensor.
func (p *parameter) split() error {
	u, t := p.unit, p.tensor
	var made *core.Tensor
	core.NoGrad(func() {
		core.WithCategory(core.Parameter, func() {
			core.Tidy(func() {
				made = p.own(t).Keep()
			})
		})
	})
	if err := made.Err(); err != nil {
		return err
	}
	made.Storage().SetCategory(core.Parameter)
	made.SetRequiresGrad(t.RequiresGrad())
	made.EnsureAutogradMeta().TakeHooks(t.EnsureAutogradMeta())
	d := t.DType()
	if u.options.Precision.Param != nil && d.IsFloat() {
		d = *u.options.Precision.Param
	}
	full := core.NewEmptied(core.CurrentMode(), u.stream, d, p.shape, core.Communication).Keep()
	// The module's tensor becomes the shard; what it was goes.
	if err := t.Exchange(made); err != nil {
		made.Release()
		full.Release()
		return err
	}
	made.Release()
	p.other = full
	p.mark()
	p.remove = full.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
		if err := p.unit.arrived(p); err != nil {
			return core.ErrorTensor(err)
		}
		return nil
	}, Failed: p.backwardFailed})
	full.EnsureAutogradMeta().StandFor(t.AutogradMeta())
	return nil
}

// mark makes operations on the shard that want the whole fail with an error that names the parameter and its unit.
func (p *parameter) mark() {
	s := p.shard()
	s.EnsureAutogradMeta().Refuse(core.Errorf(core.StateError, "fsdp",
		"parameter %s is divided over ranks and is not gathered now: call the module %q itself, or register the method that uses it (register_fsdp_forward_method), or gather it (unshard); full_tensor() has its whole value, to_local() this rank's part", p.name, p.unit.options.Name))
	s.Divide(&core.Division{Whole: "parameter " + p.name,
		Advice: "full_tensor() of the parameter has the whole, and its to_local() the part as an ordinary tensor"})
	p.gradient = &core.Division{Whole: "the gradient of parameter " + p.name,
		Advice: "full_tensor() of the gradient has the whole, its to_local() the part as an ordinary tensor, and clip_grad_norm_ knows its norm"}
}

// setGrad makes g, this rank's rows of the gradient, the shard's.
func (p *parameter) setGrad(g *core.Tensor) {
	if !p.unit.replicated() {
		g.Divide(p.gradient)
	}
	p.shard().SetGrad(g)
}

// own returns this rank's rows of a full tensor as one of their own, where shards are kept. Of one on the meta device no
// others are made.
func (p *parameter) own(full *core.Tensor) *core.Tensor {
	u := p.unit
	if full.Device().Kind() != core.MetaKind {
		made := op.Clone(p.mine(full.Detach()))
		if o := u.options.Offload; o != nil && made.Err() == nil {
			return op.ToDevice(made, o)
		}
		return made
	}
	dev := u.device
	if u.options.Offload != nil {
		dev = u.options.Offload
	}
	r, from := u.rank(), 0
	for _, n := range p.sizes[:r] {
		from += n
	}
	made := meta.Part(full.Detach(), from, from+p.sizes[r], dev)
	if made.Err() != nil {
		return core.ErrorTensor(core.Errorf(core.StateError, "fsdp", "parameter %s: %w", p.name, made.Err()))
	}
	return op.Reshape(made, p.shapeOf(p.rows[r+1]-p.rows[r])...)
}

// Materialize gives a tensor of the meta device, a module's parameter or buffer, the values that it would have and the
// device dev, where it counts under a category; another one it leaves as it is.
func Materialize(t *core.Tensor, dev core.Device, cat core.Category) error {
	if t.Device().Kind() != core.MetaKind {
		return nil
	}
	made := meta.Materialize(t.Detach(), dev).Keep()
	if err := made.Err(); err != nil {
		return err
	}
	defer made.Release()
	made.Storage().SetCategory(cat)
	made.SetRequiresGrad(t.RequiresGrad())
	return t.Exchange(made)
}

// watch adds the hooks of a parameter that is not divided.
func (p *parameter) watch() {
	after := p.tensor.PostAccumulateHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
		if err := p.unit.arrived(p); err != nil {
			return core.ErrorTensor(err)
		}
		return nil
	}, Failed: p.backwardFailed})
	before := func() {}
	if requires := p.tensor.RequiresGrad(); p.tensor.DType().IsFloat() {
		p.tensor.SetRequiresGrad(true) // one that is frozen may be thawed
		before = p.tensor.TensorHooks().Add(core.Hook{Fn: func(*core.Tensor) *core.Tensor {
			p.setAside()
			return nil
		}})
		p.tensor.SetRequiresGrad(requires)
	}
	p.remove = func() {
		before()
		after()
	}
}

// setAside keeps the gradient of a parameter that is not divided, which was reduced before, apart from what comes now. A mean over
// equal ones is the same again, but with [Unit.SetDivideFactor] it would count more than once.
func (p *parameter) setAside() {
	g := p.tensor.Grad()
	if !p.local && g != nil && p.unit.factor != 0 {
		p.before = g.Detach().Keep()
		p.tensor.SetGrad(nil)
	} else if p.local && g == nil { // dropped meanwhile
		p.before.Release()
		p.before = nil
	}
	p.local = true
}

// rejoin adds what was set aside to the gradient, which has been reduced.
func (p *parameter) rejoin() error {
	p.local = false
	if p.before == nil {
		return nil
	}
	if err := op.AddInPlace(p.before, p.tensor.Grad()).Err(); err != nil {
		return err
	}
	p.tensor.SetGrad(p.before)
	p.before = nil
	return nil
}

// release frees what the unit added to the module's tensor, which stays the shard.
func (p *parameter) release() {
	if p.remove != nil {
		p.remove()
		p.remove = nil
	}
	if p.other != nil {
		autograd.RefillAlways(p.full().Storage(), nil)
	}
	for _, t := range []**core.Tensor{&p.other, &p.second, &p.partial, &p.before} {
		if *t != nil {
			(*t).Release()
			*t = nil
		}
	}
	if meta := p.tensor.AutogradMeta(); meta != nil {
		meta.Refuse(nil)
	}
}
