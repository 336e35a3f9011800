package bind

import (
	"github.com/plait-ml/plait/capi/dlpack"
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
)

func init() { dlpack.End = func(export int64) { ObjectRelease(export) } }

// DlpackNew waits for the tensor's readers and writers and returns the address of a managed tensor of DLPack over its
// memory, of version 1 or of the form from before versions. The deleter in it gives the memory back. copied says that the
// memory is nobody else's.
//
//plait:waits
func DlpackNew(t Tensor, versioned bool, copied bool) (status int64) {
	defer protect("dlpack", &status)
	defer using(tensor(t))()
	export := TensorExport(t)
	if export < 0 {
		return export
	}
	p := dlpack.New(tensor(t), versioned, copied, export)
	if p == 0 {
		ObjectRelease(export)
		return failf(core.MemoryError, "dlpack", "no memory")
	}
	return p
}

// DlpackDestructor returns the address of the function that destroys Python's capsules around managed tensors.
func DlpackDestructor() int64 { return dlpack.Destructor() }

// DlpackTake returns an object with whose handle another library's managed tensor is given back: its deleter, the address of a C
// function, is called with its address.
func DlpackTake(managed, deleter int64) Object {
	return handle.AddObject(dlpack.Taken{Managed: managed, Deleter: deleter})
}
