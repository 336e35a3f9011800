package bind

import (
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	dtensor "github.com/plait-ml/plait/parallel/tensor"
)

// TensorRelease ends the life of a tensor's handle, and of what it alone holds: its memory and its part of the graph.
// Anything but the handle of a tensor is left alone.
func TensorRelease(t Tensor) (status Status) {
	defer protect("release", &status)
	if v := handle.Tensors.Take(t); v != nil {
		v.Release()
	}
	return 0
}

// TensorLetGo does what [TensorRelease] does, and returns the even key of a value that is no longer used, as [Dropped] does, or 0.
func TensorLetGo(t Tensor) int64 {
	TensorRelease(t)
	return droppedEven()
}

// TensorCount returns how many tensors have handles.
func TensorCount() int64 { return handle.Tensors.Len() }

// TensorDim returns the number of dimensions.
func TensorDim(t Tensor) Status {
	v := tensor(t)
	if err := v.Present("dim"); err != nil {
		return failure(err)
	}
	return int64(v.Dim())
}

// TensorShape writes the sizes of the dimensions to shape, which has room for 12, and returns their number.
func TensorShape(t Tensor, shape IntsOut) Status {
	v := tensor(t)
	if err := v.Present("shape"); err != nil {
		return failure(err)
	}
	return copyInts(shape, v.Shape())
}

// TensorStrides writes the distance of neighbours along each dimension, in elements, to strides, which has room for 12,
// and returns their number.
func TensorStrides(t Tensor, strides IntsOut) Status {
	v := tensor(t)
	if err := v.Present("stride"); err != nil {
		return failure(err)
	}
	return copyInts(strides, v.Strides())
}

func copyInts(to IntsOut, from []int) int64 {
	out := handle.Slice[int64](to, int64(len(from)))
	for i, v := range from {
		out[i] = int64(v)
	}
	return int64(len(from))
}

// TensorOffset returns the position of the first element in the storage, in elements.
func TensorOffset(t Tensor) Status {
	v := tensor(t)
	if err := v.Usable("storage_offset"); err != nil {
		return failure(err)
	}
	return int64(v.Offset())
}

// TensorDtype returns the number of the dtype.
func TensorDtype(t Tensor) Status {
	v := tensor(t)
	if err := v.Present("dtype"); err != nil {
		return failure(err)
	}
	return int64(v.DType())
}

// TensorDevice returns the number of the device; that of the default device for a number.
func TensorDevice(t Tensor) Status {
	v := tensor(t)
	if err := v.Present("device"); err != nil {
		return failure(err)
	}
	d := v.Device()
	if d == nil {
		var err error
		if d, err = core.CurrentContext().DefaultDevice(); err != nil {
			return failure(err)
		}
	}
	return int64(d.Ordinal())
}

// TensorIsContiguous returns 1 if the elements, or those of this rank's part, lie row-major without gaps, else 0.
func TensorIsContiguous(t Tensor) Status {
	v := tensor(t)
	if err := v.Present("is_contiguous"); err != nil {
		return failure(err)
	}
	if dtensor.Mesh(v) != nil { // views and copies are those of this rank's part
		v = part(v)
	}
	return truth(v.IsNumber() || v.Contiguous())
}

// TensorVersion returns how often the tensor's memory was changed in place, as [core.Tensor.Changes] counts it.
func TensorVersion(t Tensor) Status {
	v := part(tensor(t))
	if err := v.Usable("_version"); err != nil {
		return failure(err)
	}
	if v.IsNumber() {
		return 0
	}
	if v.Storage().Inference() {
		return failf(core.StateError, "_version", "Inference tensors do not track version counter")
	}
	return int64(v.Changes())
}

// TensorIsInference returns 1 if the tensor's memory was made in inference mode, else 0.
func TensorIsInference(t Tensor) Status {
	v := part(tensor(t))
	if err := v.Usable("is_inference"); err != nil {
		return failure(err)
	}
	return truth(!v.IsNumber() && v.Storage().Inference())
}

// TensorAddress returns the address of the first element on a device whose memory the host can address, else 0. It does
// not wait.
func TensorAddress(t Tensor) Status {
	v := tensor(t)
	if err := v.Usable("data_ptr"); err != nil {
		return failure(err)
	}
	return address(v)
}

// TensorStorageBytes returns the size of the storage in bytes.
func TensorStorageBytes(t Tensor) Status {
	v := tensor(t)
	if err := v.Usable("untyped_storage"); err != nil {
		return failure(err)
	}
	if v.IsNumber() {
		return 0
	}
	return int64(v.Storage().Size())
}

// TensorSetCategory counts the tensor's memory under a category: 0 activations, 1 parameters, 2 gradients, 3 optimiser
// state, 4 communication, 5 buffers.
func TensorSetCategory(t Tensor, category int64) Status {
	v := part(tensor(t))
	if err := v.Usable("category"); err != nil {
		return failure(err)
	}
	if category < 0 || category >= int64(core.Workspace) {
		return failf(core.ValueError, "category", "got %d, want 0 to %d", category, core.Workspace-1)
	}
	if !v.IsNumber() {
		v.Storage().SetCategory(core.Category(category))
	}
	return 0
}

// TensorAlias returns another handle for the tensor, with the same memory and the same place in the graph.
func TensorAlias(t Tensor) (status Tensor) {
	defer protect("alias", &status)
	return result(tensor(t).Alias(true))
}

// TensorViewDType returns a tensor over the same memory, whose elements are of another dtype: the bits, not the values.
func TensorViewDType(t Tensor, dtype int64) (status Tensor) {
	defer protect("view", &status)
	return result(tensor(t).ViewDType(core.DType(dtype)))
}

// TensorDetach returns a tensor with the same memory and no place in the graph.
func TensorDetach(t Tensor) (status Tensor) {
	defer protect("detach", &status)
	return result(tensor(t).Detach())
}

// TensorData returns what TensorDetach does, with a count of its own for changes in place.
func TensorData(t Tensor) (status Tensor) {
	defer protect("data", &status)
	return result(tensor(t).Data())
}

// TensorToDevice returns a contiguous copy on another device; on the same device it returns an alias. Copies to a GPU are queued;
// one from a GPU to the host's memory is done when it returns, unless it shall be queued too.
//
//plait:waits
func TensorToDevice(t Tensor, to Device, queued bool) (status Tensor) {
	defer protect("to", &status)
	defer using(tensor(t))()
	dev := deviceOrDefault(to)
	if queued || dev != nil && !dev.HostAccessible() {
		return result(collective.ToDevice(tensor(t), dev))
	}
	return result(op.ToDevice(tensor(t), dev))
}

// TensorNumber returns a 0-d tensor that stands for a plain number: it has no memory and promotes as a number does. kind
// is -1 for a floating-point number, -2 for an integer, -3 for a bool.
func TensorNumber(kind int64, value float64, integer int64) Tensor {
	switch kind {
	case intNumber:
		return handle.Tensors.Add(core.IntNum(integer))
	case boolNumber:
		return handle.Tensors.Add(core.BoolNum(integer != 0))
	}
	return handle.Tensors.Add(core.Num(value))
}

// TensorComplexNumber is [TensorNumber] for a complex number.
func TensorComplexNumber(re float64, im float64) Tensor {
	return handle.Tensors.Add(core.ComplexNum(complex(re, im)))
}

// ResultDtype returns the dtype to which operands promote.
func ResultDtype(operands Tensors, n int64) (status Status) {
	defer protect("result_type", &status)
	list := tensors(operands, n)
	for _, t := range list {
		if err := t.Present("result_type"); err != nil {
			return failure(err)
		}
	}
	return common("result_type", core.ResultType(list...))
}

// PromoteDtypes returns the dtype to which tensors of two dtypes promote.
func PromoteDtypes(a, b DType) Status {
	x, y := numbered(a), numbered(b)
	if !x.Valid() || !y.Valid() {
		return failf(core.DTypeError, "promote_types", "want the numbers of two dtypes, got %d and %d", a, b)
	}
	return common("promote_types", core.Promote(x, y))
}

func common(name string, d core.DType) Status {
	if !d.Valid() {
		return failf(core.DTypeError, name, "uint16, uint32 and uint64 have no common dtype with other integers or bools; convert one of them")
	}
	return int64(d)
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
