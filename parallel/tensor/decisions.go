package tensor

import (
	"encoding/binary"
	"math"
	"reflect"
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// decisions remembers the strategies that were chosen for uses of ops, since programs repeat them in each step.
var decisions struct {
	sync.RWMutex
	chosen map[string][]op.Strategy
}

const mostDecisions = 1 << 14

// A use of an op is described by what its strategies and their costs depend on: the op, the mesh, shapes, dtypes, placements and which inputs
// need gradients, and the arguments that are no tensors, of which options are structs. describe appends that to buf; ok is false for arguments of other types.
func (p *parts) describe(buf []byte, a core.Application, u *op.Use, list []*parts, grad bool) (key []byte, ok bool) {
	ints := func(list []int) {
		buf = binary.AppendVarint(buf, int64(len(list)))
		for _, n := range list {
			buf = binary.AppendVarint(buf, int64(n))
		}
	}
	flag := func(on bool) {
		if on {
			buf = append(buf, 1)
		} else {
			buf = append(buf, 0)
		}
	}
	buf = append(append(buf, a.Op...), 0)
	flag(grad)
	ints(p.mesh.Shape())
	for _, arg := range a.Args {
		switch x := arg.(type) {
		case nil, *core.Tensor:
			buf = append(buf, 't')
		case []*core.Tensor:
			buf = binary.AppendVarint(append(buf, 'l'), int64(len(x)))
		case int:
			buf = binary.AppendVarint(append(buf, 'i'), int64(x))
		case []int:
			buf = append(buf, 'd')
			flag(x == nil)
			ints(x)
		case bool:
			buf = append(buf, 'b')
			flag(x)
		case float64:
			buf = binary.AppendUvarint(append(buf, 'f'), math.Float64bits(x))
		case string:
			buf = append(append(append(buf, 's'), x...), 0)
		default:
			if buf, ok = describeOptions(buf, reflect.ValueOf(arg)); !ok {
				return nil, false
			}
		}
	}
	for i, q := range list {
		if q == nil {
			flag(u.Tensors[i] == nil)
			continue
		}
		buf = append(buf, 2, byte(q.here.DType()))
		flag(q.here.RequiresGrad())
		ints(q.shape)
		for _, place := range q.placements {
			buf = binary.AppendVarint(append(buf, byte(place.Kind), byte(place.Combine)), int64(place.Dim))
			buf = binary.AppendVarint(buf, int64(place.Factor))
		}
	}
	return buf, true
}

// describeOptions appends what a struct of options has, but for its tensors, which are inputs; ok is false for other types.
func describeOptions(buf []byte, v reflect.Value) ([]byte, bool) {
	if v.Kind() != reflect.Struct {
		return nil, false
	}
	buf = append(buf, 'o')
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Type() == tensorType {
			continue // whether it is there is said of the inputs
		}
		if f.Kind() == reflect.Pointer {
			if f.IsNil() {
				buf = append(buf, 'n')
				continue
			}
			f = f.Elem()
		}
		switch {
		case f.CanInt():
			buf = binary.AppendVarint(append(buf, 'i'), f.Int())
		case f.CanUint():
			buf = binary.AppendUvarint(append(buf, 'u'), f.Uint())
		case f.CanFloat():
			buf = binary.AppendUvarint(append(buf, 'f'), math.Float64bits(f.Float()))
		case f.Kind() == reflect.Bool:
			if buf = append(buf, 'b'); f.Bool() {
				buf = append(buf, 't')
			}
		case f.Kind() == reflect.String:
			buf = append(append(append(buf, 's'), f.String()...), 0)
		default:
			return nil, false
		}
	}
	return buf, true
}

var tensorType = reflect.TypeFor[*core.Tensor]()

// decided returns the strategies that were chosen for a use, or nil.
func decided(key []byte) []op.Strategy {
	decisions.RLock()
	defer decisions.RUnlock()
	return decisions.chosen[string(key)]
}

// decide remembers the strategies that were chosen for a use. Those with a function of their own may depend on the use's tensors.
func decide(key []byte, chosen []op.Strategy) {
	if slices.ContainsFunc(chosen, func(s op.Strategy) bool { return s.Local != nil }) {
		return
	}
	decisions.Lock()
	defer decisions.Unlock()
	if decisions.chosen == nil || len(decisions.chosen) >= mostDecisions {
		decisions.chosen = map[string][]op.Strategy{}
	}
	decisions.chosen[string(key)] = chosen
}
