package op

import (
	"runtime"

	"github.com/plait-ml/plait/core"
)

// A Cast is what autocast does with the floating-point inputs of an operation, but those in float64.
type Cast uint8

const (
	// KeepDTypes leaves them as they are.
	KeepDTypes Cast = iota
	// CastLow casts them to autocast's dtype.
	CastLow
	// CastFloat32 casts them to float32.
	CastFloat32
	// CastWidest casts them to the widest dtype among them.
	CastWidest
)

// Casts is what autocast does with an operation's inputs on CPU devices and on others.
type Casts struct{ CPU, GPU Cast }

// A casting is one operation under autocast: its inputs cast, and autocast off for the operations that it is made of.
type casting struct {
	before core.Mode
	made   []*core.Tensor
}

// autocast replaces the inputs, which may be nil, by what the row of the operation says, if the calling thread has autocast
// on. It starts a function, before the names of its arguments are used:
//
//	defer autocast("linear", &x, &weight, &bias).end()
func autocast(name string, inputs ...**core.Tensor) *casting {
	if !core.Autocasts() {
		return nil
	}
	return beginCasting(name, inputs)
}

// autocastAll is [autocast] for a list, which it replaces by another.
func autocastAll(name string, list *[]*core.Tensor) *casting {
	if !core.Autocasts() || !core.CurrentMode().Autocasting() {
		return nil
	}
	copied := append([]*core.Tensor(nil), *list...)
	inputs := make([]**core.Tensor, len(copied))
	for i := range copied {
		inputs[i] = &copied[i]
	}
	*list = copied
	return beginCasting(name, inputs)
}

func beginCasting(name string, inputs []**core.Tensor) *casting {
	mode := core.CurrentMode()
	if !mode.Autocasting() {
		return nil
	}
	kind := ""
	for _, p := range inputs {
		if t := *p; t != nil && t.Usable(name) == nil && !t.IsNumber() {
			kind = t.Device().Kind()
			break
		}
	}
	if kind == "" || !mode.Autocast(kind) {
		return nil
	}
	runtime.LockOSThread()
	c := &casting{before: mode}
	core.SwapMode(mode.WithoutAutocast())
	if to, ok := castOf(name, kind).dtype(mode, kind, inputs); ok {
		c.cast(to, kind, inputs)
	}
	return c
}

// end ends what [autocast] began; without autocast there is nothing to do.
func (c *casting) end() {
	if c == nil {
		return
	}
	core.SwapMode(c.before)
	runtime.UnlockOSThread()
	for _, t := range c.made {
		t.Release()
	}
}

func castOf(name, kind string) Cast {
	r := Lookup(name)
	switch {
	case r == nil:
		return KeepDTypes
	case kind == "cpu":
		return r.Autocast.CPU
	}
	return r.Autocast.GPU
}

// dtype returns the dtype to cast to, if any.
func (c Cast) dtype(mode core.Mode, kind string, inputs []**core.Tensor) (core.DType, bool) {
	switch c {
	case CastLow:
		return mode.AutocastDType(kind), true
	case CastFloat32:
		return core.Float32, true
	case CastWidest:
		found := false
		d := mode.AutocastDType(kind)
		for _, p := range inputs {
			if castable(*p, kind) {
				found = true
				d = core.Promote(d, (*p).DType())
			}
		}
		return d, found
	}
	return 0, false
}

// castable reports whether autocast on devices of the kind concerns t.
func castable(t *core.Tensor, kind string) bool {
	return t != nil && t.Usable("autocast") == nil && !t.IsNumber() && t.DType().IsFloat() && t.DType() != core.Float64 &&
		t.Device().Kind() == kind
}

func (c *casting) cast(to core.DType, kind string, inputs []**core.Tensor) {
	for _, p := range inputs {
		t := *p
		if !castable(t, kind) || t.DType() == to {
			continue
		}
		*p = c.before.WithoutAutocast().CachedCast(t, to, func() *core.Tensor { return To(t, to) })
		c.made = append(c.made, *p)
	}
}
