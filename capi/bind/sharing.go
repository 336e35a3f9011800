package bind

import (
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/sharing"
)

// TensorShare moves the storage of a tensor on a CPU device, and all tensors on it, into memory that processes can share, unless it is
// there. It does not wait: wait for the tensor's value before, so that little is queued on the old memory, and after, since the contents
// are copied in stream order.
func TensorShare(t Tensor) (status Status) {
	defer protect("share_memory_", &status)
	_, err := sharing.Start(tensor(t))
	return failure(err)
}

// TensorIsShared returns 1 if the storage of a tensor lies in memory that processes can share, or has no bytes, else 0.
func TensorIsShared(t Tensor) (status Status) {
	defer protect("is_shared", &status)
	v := tensor(t)
	if err := v.Usable("is_shared"); err != nil {
		return failure(err)
	}
	return truth(sharing.Of(v) != nil || !v.IsNumber() && v.Storage().Size() == 0)
}

// TensorShared writes to out what another process makes a tensor over the same memory of, by [TensorOfShared]: the descriptor of the file, which is open
// as long as the storage lives, the size in bytes and the two numbers that name it.
func TensorShared(t Tensor, out IntsOut) (status Status) {
	defer protect("share_memory_", &status)
	f := sharing.Of(tensor(t))
	if f == nil {
		return failf(core.ValueError, "share_memory_", "the tensor does not lie in shared memory")
	}
	copy(handle.Slice[int64](out, 4), []int64{int64(f.FD), int64(f.Size), f.Key[0], f.Key[1]})
	return 0
}

// TensorOfShared returns a tensor of bytes over shared memory that another process has made, or this one. The caller closes the descriptor.
func TensorOfShared(fd int64, size int64, key0 int64, key1 int64, on Device) (status Tensor) {
	defer protect("share_memory_", &status)
	return bytesOn(on, func(s core.Stream) (*core.Storage, error) {
		return sharing.Open(s, sharing.File{FD: int(fd), Size: int(size), Key: sharing.Key{key0, key1}})
	})
}

// TensorNewShared returns a tensor of zero bytes in new memory that processes can share.
func TensorNewShared(size int64, on Device) (status Tensor) {
	defer protect("share_memory_", &status)
	return bytesOn(on, func(s core.Stream) (*core.Storage, error) { return sharing.New(s, int(size)) })
}

// bytesOn returns a tensor of bytes over a storage that is made on the current stream of a device.
func bytesOn(on Device, storage func(core.Stream) (*core.Storage, error)) Tensor {
	dev := device(on)
	if dev == nil || !dev.HostAccessible() {
		return failf(core.DeviceError, "share_memory_", "want a device that the host can address, got %d", on)
	}
	m := core.CurrentMode()
	st, err := storage(m.Context().Stream(dev))
	if err != nil {
		return failure(err)
	}
	defer st.Release()
	return result(core.WrapTensor(m, st, core.Uint8, []int{st.Size()}, []int{1}, 0))
}
