package bind

import (
	"math"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Numbers in the place of a tensor: the handle says of which kind the number that follows it is.
const (
	floatNumber = -1
	intNumber   = -2
	boolNumber  = -3
)

// foreign is what an operation gets in the place of a handle that names no tensor.
func foreign(h Tensor) *core.Tensor {
	if h == 0 {
		return core.ErrorTensor(core.Errorf(core.TypeError, "tensor", "want the handle of a tensor, got 0"))
	}
	return core.ErrorTensor(core.Errorf(core.TypeError, "tensor", "%d is not the handle of a tensor; was it released?", h))
}

// tensor returns the tensor that h names.
func tensor(h Tensor) *core.Tensor {
	if t := handle.Tensors.Get(h); t != nil {
		return t
	}
	return foreign(h)
}

// tensorOrNil is tensor for arguments that may be absent: it returns nil for 0.
func tensorOrNil(h Tensor) *core.Tensor {
	if h == 0 {
		return nil
	}
	return tensor(h)
}

// operand is tensor for arguments that may be numbers, of which h tells the kind and v the value.
func operand(h Tensor, v float64) *core.Tensor {
	switch h {
	case floatNumber:
		return core.Num(v)
	case intNumber:
		return core.IntNum(int64(v))
	case boolNumber:
		return core.BoolNum(v != 0)
	}
	return tensor(h)
}

// operandOrNil is operand for arguments that may be absent: it returns nil for 0.
func operandOrNil(h Tensor, v float64) *core.Tensor {
	if h == 0 {
		return nil
	}
	return operand(h, v)
}

// tensors returns the tensors that n handles at the address a name, nil for 0.
func tensors(a Tensors, n int64) []*core.Tensor {
	return appendTensors(make([]*core.Tensor, 0, max(n, 0)), a, n)
}

func appendTensors(out []*core.Tensor, a Tensors, n int64) []*core.Tensor {
	for _, h := range handle.Slice[int64](a, n) {
		out = append(out, tensorOrNil(h))
	}
	return out
}

// using keeps other threads from giving tensors another memory until the function that it returns is called. What runs without
// Python's lock begins with it.
func using(list ...*core.Tensor) (done func()) {
	used := make([]*core.Tensor, 0, len(list))
	for _, t := range list {
		if t.Use() {
			used = append(used, t)
		}
	}
	return func() {
		for _, t := range used {
			t.Unuse()
		}
	}
}

// ints returns the n integers at the address a; nil if n is negative, which stands for an absent list.
func ints(a Ints, n int64) []int {
	if n < 0 {
		return nil
	}
	return handle.Ints(a, n)
}

// result names t, the result of an operation on inputs, or its error. A tensor that is one of the inputs gets a second
// life: each handle is released on its own. One in memory that the thread has offered needs no handle, as its owner has one.
func result(t *core.Tensor, inputs ...*core.Tensor) Tensor {
	if err := t.Err(); err != nil {
		return failure(err)
	}
	if op.OfferTaken(t) {
		t.Release()
		return packed(inOut)
	}
	for _, in := range inputs {
		if t == in {
			t = t.Alias(true)
			break
		}
	}
	return packed(handle.Tensors.Add(t))
}

// results names tensors at the address a and returns 0; if one has an error, none is named.
func results(a TensorsOut, list ...*core.Tensor) Status {
	for _, t := range list {
		if err := t.Err(); err != nil {
			for _, u := range list {
				if u.Err() == nil {
					u.Release()
				}
			}
			return failure(err)
		}
	}
	out := handle.Slice[int64](a, int64(len(list)))
	for i, t := range list {
		out[i] = handle.Tensors.Add(t)
	}
	return packed(0)
}

// changed returns the status of an operation that changed the tensor it returns.
func changed(t *core.Tensor) Status {
	if err := t.Err(); err != nil {
		return failure(err)
	}
	return packed(0)
}

// numbered returns the dtype that d names: one that is not valid for the number of none.
func numbered(d DType) core.DType {
	if d < 0 || d > math.MaxUint8 {
		return math.MaxUint8
	}
	return core.DType(d)
}

// valid is numbered for functions that defer [protect], whose status tells of a number that is no dtype's.
func valid(d DType) core.DType {
	v := numbered(d)
	if !v.Valid() {
		panic(core.Errorf(core.DTypeError, "dtype", "%d is not the number of a dtype", d))
	}
	return v
}

// dtype returns the dtype that d names; nil for a negative one.
func dtype(d DType) *core.DType {
	if d < 0 {
		return nil
	}
	v := valid(d)
	return &v
}

// device returns the device that d names; nil for a negative one.
func device(d Device) core.Device {
	if d < 0 {
		return nil
	}
	if open := core.OpenDevices(); int(d) < len(open) {
		return open[d]
	}
	return nil
}

// deviceOrDefault is device for functions that defer [protect], whose status tells of a number that is no device's.
func deviceOrDefault(d Device) core.Device {
	v := device(d)
	if v == nil && d >= 0 {
		panic(core.Errorf(core.DeviceError, "device", "%d is not the number of an open device", d))
	}
	return v
}

// generator returns the generator that h names; nil for 0.
func generator(h Object) *core.Generator {
	g, _ := handle.Object[*core.Generator](h)
	return g
}

// optional returns the address of v, or nil for an absent one.
func optional[T any](v T, present bool) *T {
	if !present {
		return nil
	}
	return &v
}

// floats returns the n numbers at the address a; nil if n is negative, which stands for an absent list.
func floats(a Floats, n int64) []float64 {
	if n < 0 {
		return nil
	}
	return append([]float64{}, handle.Slice[float64](a, n)...)
}

// list names the results of an operation as one object.
func list(ts []*core.Tensor) Object {
	for _, t := range ts {
		if err := t.Err(); err != nil {
			return failure(err)
		}
	}
	return packed(handle.AddObject(ts))
}

// ListLen returns how many tensors a list of results has.
func ListLen(h Object) int64 {
	ts, _ := handle.Object[[]*core.Tensor](h)
	return int64(len(ts))
}

// ListTake ends the life of a list of results and writes the handles of its tensors to out, which has room for them.
func ListTake(h Object, out TensorsOut) Status {
	ts, ok := handle.Object[[]*core.Tensor](h)
	if !ok {
		return failf(core.TypeError, "list", "%d is not the handle of a list", h)
	}
	handle.Objects.Take(h)
	return results(out, ts...)
}
