package gpu

// Memory that processes share: a slab of one is a slab of the others' devices too.

import (
	"encoding/binary"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
)

// Shares implements [core.SharingDevice].
func (d *Device) Shares() bool {
	_, ok := d.thread.gpu.(driver.Sharing)
	return ok && environment().peers
}

// Lost implements [core.SharingDevice].
func (d *Device) Lost() error { return d.lost.Get() }

// Share implements [core.SharingDevice]. The handle is the size of the slab and the driver's handle.
func (d *Device) Share(x core.Memory) (block []byte, at int, err error) {
	s, at := slabOf(x)
	m := &d.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.handle == nil {
		var handle []byte
		d.thread.do(func() { handle, err = d.thread.gpu.(driver.Sharing).Share(s.buffer) })
		if err != nil {
			return nil, 0, core.Errorf(core.DeviceError, "share", "%v cannot share memory with other processes: %v", d, err)
		}
		s.handle = append(binary.LittleEndian.AppendUint64(nil, uint64(s.size)), handle...)
	}
	return s.handle, at, nil
}

// OpenShared implements [core.SharingDevice].
func (d *Device) OpenShared(block []byte) (core.Memory, error) {
	fail := func(why any) (core.Memory, error) {
		return core.Memory{}, core.Errorf(core.DeviceError, "share", "%v cannot open memory of another process: %v", d, why)
	}
	const header = 8
	if len(block) < header {
		return fail("the handle is damaged")
	}
	size := int(binary.LittleEndian.Uint64(block))
	var b driver.Buffer
	var err error
	d.thread.do(func() { b, err = d.thread.gpu.(driver.Sharing).OpenShared(block[header:], size) })
	if err != nil {
		return fail(err)
	}
	s := &slab{device: d, buffer: b, size: size, foreign: true}
	if err := allSlabs.add(s); err != nil {
		d.thread.do(b.Release)
		return fail(err)
	}
	return s.at(0, size), nil
}

// CloseShared implements [core.SharingDevice]. Nothing in flight may use the memory.
func (d *Device) CloseShared(x core.Memory) {
	s, _ := slabOf(x)
	d.programs.releaseGroups(s.number)
	d.thread.do(s.buffer.Release)
	allSlabs.remove(s)
}
