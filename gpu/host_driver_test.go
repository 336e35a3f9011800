//go:build cgo && linux && amd64

package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
	"github.com/plait-ml/plait/gpu/internal/hostcuda"
)

// The devices of the kind hostcuda.
const (
	HostForward  = iota
	HostBackward // runs workgroups and invocations in the opposite order
	HostIdle     // runs nothing
	hostDevices
)

func init() {
	core.RegisterBackend(core.Backend{Kind: "hostcuda", Count: func() int { return hostDevices }, Open: openHost})
}

// openHost opens the host as a GPU. Each piece of its memory is a slab, so that accesses past the end do not reach another tensor.
func openHost(index, ordinal int) (core.Device, error) {
	f := &hostcuda.Driver{Backward: index == HostBackward, Idle: index == HostIdle}
	d, err := newDevice(index, ordinal, adapter{Adapter: f.Adapters()[0], driver: f})
	if err != nil {
		return nil, err
	}
	d.memory.slabSize = 0
	return d, nil
}

// HostPrograms returns the programs that a device of the kind hostcuda has taken.
func HostPrograms(d *Device) (list []driver.Program) {
	d.thread.do(func() { list = d.thread.gpu.(*hostcuda.GPU).Programs() })
	return list
}
