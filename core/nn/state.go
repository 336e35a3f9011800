package nn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// StateDict returns the parameters and buffers of m by name. The tensors share memory with m's, without their autograd metadata.
func StateDict(m Module) map[string]*core.Tensor {
	state := map[string]*core.Tensor{}
	for _, n := range NamedTensors(m) {
		if n.Kind != Transient {
			state[n.Name] = n.Tensor.Detach().Keep()
		}
	}
	return state
}

// A Report says how a state dict differs from a module.
type Report struct {
	Missing    []string // in the module, not in the state dict
	Unexpected []string // in the state dict, not in the module
	Mismatched []string // of another shape, with both shapes
}

// Empty reports whether there is no difference.
func (r Report) Empty() bool { return len(r.Missing)+len(r.Unexpected)+len(r.Mismatched) == 0 }

// String lists the differences.
func (r Report) String() string {
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"missing", r.Missing}, {"unexpected", r.Unexpected}, {"mismatched", r.Mismatched}} {
		if len(p.names) > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s", p.what, strings.Join(p.names, ", ")))
		}
	}
	return strings.Join(parts, "; ")
}

// LoadStateDict copies state into m's parameters and buffers, converting dtypes and moving between devices. Shapes must
// agree. If strict, every name must be on both sides. On an error nothing has been changed.
func LoadStateDict(m Module, state map[string]*core.Tensor, strict bool) (Report, error) {
	var r Report
	targets := map[string]*core.Tensor{}
	for _, n := range NamedTensors(m) {
		if n.Kind == Transient {
			continue
		}
		targets[n.Name] = n.Tensor
		source, ok := state[n.Name]
		switch {
		case !ok:
			r.Missing = append(r.Missing, n.Name)
		case source.Err() != nil:
			return r, fmt.Errorf("%s: %w", n.Name, source.Err())
		case !slices.Equal(source.Shape(), n.Tensor.Shape()):
			r.Mismatched = append(r.Mismatched, fmt.Sprintf("%s (got %v, want %v)", n.Name, source.Shape(), n.Tensor.Shape()))
		}
	}
	for name := range state {
		if targets[name] == nil {
			r.Unexpected = append(r.Unexpected, name)
		}
	}
	slices.Sort(r.Unexpected)
	if len(r.Mismatched) > 0 || strict && !r.Empty() {
		return r, core.Errorf(core.ValueError, "load_state_dict", "the state dict does not fit the module: %v", r)
	}
	var err error
	core.NoGrad(func() {
		core.Tidy(func() {
			for name, t := range targets {
				source := state[name]
				if source == nil || err != nil {
					continue
				}
				if source.Device() != t.Device() {
					source = op.ToDevice(source, t.Device())
				}
				err = op.CopyInPlace(t, source).Err()
			}
		})
	})
	return r, err
}

// ToDevice moves the parameters and buffers of m to dev, with the gradients they have. They become new tensors, and the old
// ones are released: make optimisers afterwards.
func ToDevice(m Module, dev core.Device) error {
	return replaceAll(m, func(t *core.Tensor) *core.Tensor { return op.ToDevice(t, dev) })
}

// ToDType converts the floating-point and complex parameters and buffers of m to d, a floating-point or complex dtype, with the gradients they have. They become new
// tensors, and the old ones are released: make optimisers afterwards.
func ToDType(m Module, d core.DType) error {
	if !d.Differentiable() {
		return core.Errorf(core.TypeError, "to", "a module's dtype must be floating point or complex, got %v", d)
	}
	return replaceAll(m, func(t *core.Tensor) *core.Tensor {
		if !t.DType().Differentiable() {
			return t
		}
		return op.To(t, d)
	})
}

// replaceAll puts convert's result in the place of every tensor, shared ones once; after an error, of none.
func replaceAll(m Module, convert func(*core.Tensor) *core.Tensor) error {
	named := NamedTensors(m)
	converted := map[*core.Tensor]*core.Tensor{}
	var err error
	core.NoGrad(func() {
		core.Tidy(func() {
			for _, n := range named {
				if converted[n.Tensor] != nil {
					continue
				}
				u := convert(n.Tensor)
				if err = u.Err(); err != nil {
					err = fmt.Errorf("%s: %w", n.Name, err)
					return
				}
				if u.Storage() == n.Tensor.Storage() {
					u = n.Tensor // nothing to convert
				} else {
					u = u.Detach().Keep()
					categorise(u, n.Kind)
					u.SetRequiresGrad(n.Tensor.RequiresGrad())
					g, lender := n.Tensor.BorrowGrad()
					defer lender.ReturnGrad()
					if g != nil {
						h := convert(g)
						if err = h.Err(); err != nil {
							err = fmt.Errorf("%s: %w", n.Name, err)
							return
						}
						u.SetGrad(h.Detach().Keep())
					}
				}
				converted[n.Tensor] = u
			}
		})
	})
	if err != nil {
		for t, u := range converted {
			if u != t {
				u.Release()
			}
		}
		return err
	}
	for i := range named {
		named[i].Set(converted[named[i].Tensor])
	}
	for t, u := range converted {
		if u != t {
			t.Release()
		}
	}
	return nil
}

func categorise(t *core.Tensor, k Kind) {
	if k == Parameter {
		t.Storage().SetCategory(core.Parameter)
	} else {
		t.Storage().SetCategory(core.Buffer)
	}
}
