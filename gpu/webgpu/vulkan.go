//go:build cgo && ((linux && amd64) || darwin)

package webgpu

/*
#include "shim.h"
*/
import "C"

import "github.com/plait-ml/plait/gpu/driver"

// A vulkanDevice is what Vulkan says of a GPU.
type vulkanDevice struct {
	name           string
	vendor, device uint32
	uuid           [16]byte
	memory         int
}

// vulkanDevices lists the GPUs of Vulkan, in its order.
func vulkanDevices() []vulkanDevice {
	var raw [maxAdapters]C.plaitk_gpu_vulkan
	out := make([]vulkanDevice, int(C.plaitk_gpu_describe(&raw[0], maxAdapters)))
	for i := range out {
		r := &raw[i]
		out[i] = vulkanDevice{name: C.GoString(&r.name[0]), vendor: uint32(r.vendor), device: uint32(r.device), memory: int(r.memory)}
		for j, b := range r.uuid {
			out[i].uuid[j] = byte(b)
		}
	}
	return out
}

// identify adds to adapters what Vulkan says of the same GPUs. GPUs of one model are in the same order in both lists. If one list has
// more of them, it is not known which is which, and nothing is added.
func identify(adapters []driver.Adapter, devices []vulkanDevice) {
	type model struct {
		name           string
		vendor, device uint32
	}
	byModel := map[model][]vulkanDevice{}
	for _, d := range devices {
		m := model{d.name, d.vendor, d.device}
		byModel[m] = append(byModel[m], d)
	}
	listed := map[model][]*driver.Adapter{}
	for i := range adapters {
		a := &adapters[i]
		m := model{a.Name, a.Vendor, a.Device}
		listed[m] = append(listed[m], a)
	}
	for m, same := range listed {
		if len(byModel[m]) != len(same) {
			continue
		}
		for i, a := range same {
			a.UUID, a.Memory = byModel[m][i].uuid, byModel[m][i].memory
		}
	}
}
