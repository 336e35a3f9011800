package bind

import (
	"encoding/json"
	"unsafe"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/safetensors"
)

// A file is a safetensors file that a handle keeps open.
type file struct{ *safetensors.File }

func (f file) Close() { _ = f.File.Close() }

// FileOpen maps a safetensors file, checks it and returns an object that stands for it.
//
//plait:waits
func FileOpen(path string) (status Object) {
	defer protect("safetensors", &status)
	f, err := safetensors.Open(path)
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(file{f})
}

// FileParse is [FileOpen] for bytes in memory, of which it makes a copy.
//
//plait:waits
func FileParse(data Bytes, bytes int64) (status Object) {
	defer protect("safetensors", &status)
	f, err := safetensors.Parse(append([]byte(nil), handle.Slice[byte](data, bytes)...))
	if err != nil {
		return failure(err)
	}
	return handle.AddObject(file{f})
}

// FileDescribe returns what a file holds, as JSON: {"metadata": {...}, "tensors": [{"name", "dtype", "shape"}, ...]},
// in the order of the tensors' bytes; nothing for what is no file.
func FileDescribe(h Object) string {
	f, ok := handle.Object[file](h)
	if !ok {
		return ""
	}
	type tensor struct {
		Name  string  `json:"name"`
		DType string  `json:"dtype"`
		Shape []int64 `json:"shape"`
	}
	all := []tensor{}
	for info := range f.Infos() {
		all = append(all, tensor{info.Name, string(info.DType), info.Shape})
	}
	text, err := json.Marshal(map[string]any{"metadata": f.Metadata(), "tensors": all})
	if err != nil {
		return ""
	}
	return string(text)
}

// FileTensor returns a tensor of a file on the current default device. On a CPU device it lies in the file's map.
//
//plait:waits
func FileTensor(h Object, name string) (status Tensor) {
	defer protect("safetensors", &status)
	f, ok := handle.Object[file](h)
	if !ok {
		return failf(core.TypeError, "safetensors", "%d is not the handle of a file", h)
	}
	return result(f.Tensor(name))
}

// FileSave writes n tensors to a safetensors file, which replaces what is at path once it is complete. header is JSON:
// {"names": [...], "metadata": {...}}.
//
//plait:waits
func FileSave(path string, header string, list Tensors, n int64) (status Status) {
	defer protect("safetensors", &status)
	var h struct {
		Names    []string          `json:"names"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal([]byte(header), &h); err != nil {
		return failf(core.ValueError, "safetensors", "header: %v", err)
	}
	if int64(len(h.Names)) != n {
		return failf(core.ValueError, "safetensors", "got %d names and %d tensors", len(h.Names), n)
	}
	ts := tensors(list, n)
	defer using(ts...)()
	var entries []safetensors.Entry
	for i, t := range ts {
		e, err := safetensors.EntryOf(h.Names[i], t)
		if err != nil {
			return failure(err)
		}
		entries = append(entries, e)
	}
	return failure(safetensors.WriteFile(path, entries, h.Metadata))
}

// TensorStorageId returns a number that tensors which share memory have in common, and no others that live: that of a distributed tensor's part.
func TensorStorageId(t Tensor) Status {
	v := onRank(tensor(t))
	if err := v.Usable("untyped_storage"); err != nil {
		return failure(err)
	}
	if v.IsNumber() {
		return 0
	}
	return int64(uintptr(unsafe.Pointer(v.Storage())))
}

// TensorStorage returns a tensor of one dimension over the whole memory of a tensor, without its gradient.
func TensorStorage(t Tensor) (status Tensor) {
	defer protect("untyped_storage", &status)
	v := tensor(t)
	if err := v.Usable("untyped_storage"); err != nil {
		return failure(err)
	}
	if v.IsNumber() {
		return failf(core.TypeError, "untyped_storage", "a number has no memory")
	}
	st := v.Storage()
	count := st.Size() / v.DType().Size()
	return result(core.WrapTensor(core.CurrentMode(), st, v.DType(), []int{count}, []int{1}, 0))
}
