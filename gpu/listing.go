package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
)

// nvidia is NVIDIA's number on the PCI bus.
const nvidia = 0x10de

// An adapter is a GPU under one driver.
type adapter struct {
	driver.Adapter
	driver driver.Driver
	reason string // why another driver does not run it
}

// word returns the word before the colon in the device's name.
func (a adapter) word() string {
	if a.driver.Name() == cudaDriver {
		return "cuda"
	}
	return "gpu"
}

// An entry is a GPU that can be opened.
type entry struct {
	adapters []adapter         // under the drivers that may open it, the preferred one first
	why      map[string]string // why other drivers may not, by name, where there is a special reason
	refused  string            // the driver that PLAIT_GPU_DRIVER asks for and that does not have it, or empty
}

// A listing is the GPUs of several drivers.
type listing struct {
	drivers  []driver.Driver
	choice   driverChoice
	counts   map[string]int // adapters by driver
	software string         // the name of a software adapter that is left out, or empty

	mu      sync.Mutex // guards entries: a driver may turn out to be unable to open one
	entries []*entry
}

// newListing lists each GPU of the drivers once: those of the first driver in its order, then those that only the next one has. Software
// adapters are listed as many times as the settings say.
func newListing(drivers []driver.Driver, s settings) *listing {
	l := &listing{drivers: drivers, choice: s.drivers, counts: map[string]int{}}
	var merged []*entry
	for _, d := range drivers {
		if s.drivers.every != "" && s.drivers.every != d.Name() {
			continue
		}
		before := slices.Clone(merged)
		for _, a := range d.Adapters() {
			l.counts[d.Name()]++
			if e := find(before, a); e != nil {
				e.add(adapter{Adapter: a, driver: d})
			} else if !coveredByCUDA(before, a, s.hidesCUDA) {
				merged = append(merged, &entry{adapters: []adapter{{Adapter: a, driver: d}}, why: map[string]string{}})
			}
		}
	}
	for _, e := range merged {
		times := 1
		if a := e.adapters[0]; a.Software {
			times = s.software
			if times == 0 {
				l.software = a.Name
			}
		}
		for range times {
			l.entries = append(l.entries, &entry{adapters: e.adapters, why: maps.Clone(e.why)})
		}
	}
	for index, name := range s.drivers.byIndex {
		if index < len(l.entries) {
			l.entries[index].choose(name)
		}
	}
	return l
}

// find returns the entry of the GPU that another driver lists as a, or nil.
func find(entries []*entry, a driver.Adapter) *entry {
	for _, e := range entries {
		if a.UUID != [16]byte{} && a.UUID == e.adapters[0].UUID {
			return e
		}
	}
	return nil
}

// coveredByCUDA reports whether a GPU that no entry matches is left to CUDA. CUDA lists all GPUs of NVIDIA that are new enough, so one whose
// UUID is not known is probably an entry, and one whose UUID is known is probably hidden if CUDA_VISIBLE_DEVICES hides some.
func coveredByCUDA(entries []*entry, a driver.Adapter, hides bool) bool {
	listed := slices.ContainsFunc(entries, func(e *entry) bool { return e.adapters[0].driver.Name() == cudaDriver })
	return listed && a.Vendor == nvidia && (hides || a.UUID == [16]byte{})
}

// add adds the GPU under another driver. What one driver knows of a GPU holds under the other too.
func (e *entry) add(b adapter) {
	a := &e.adapters[0]
	share(&a.Memory, &b.Memory)
	share(&a.Multiprocessors, &b.Multiprocessors)
	share(&a.ComputeCapability, &b.ComputeCapability)
	e.adapters = append(e.adapters, b)
}

// share sets the one of two numbers that is 0 to the other.
func share(a, b *int) {
	if *a == 0 {
		*a = *b
	} else if *b == 0 {
		*b = *a
	}
}

// choose leaves a GPU under one driver alone.
func (e *entry) choose(name string) {
	for _, a := range e.adapters {
		if a.driver.Name() == name {
			e.adapters = []adapter{a}
			for _, other := range driverNames {
				if other != name {
					e.why[other] = "PLAIT_GPU_DRIVER asks for " + name
				}
			}
			return
		}
	}
	e.refused = name
}

// open opens the GPU with an index, under the first of its drivers that can. No two calls run at a time.
func (l *listing) open(index, ordinal int) (*Device, error) {
	for _, chosen := range slices.Sorted(maps.Keys(l.choice.byIndex)) {
		if n := len(l.entries); chosen >= n && n > 0 {
			return nil, core.Errorf(core.DeviceError, "device", "PLAIT_GPU_DRIVER has a driver for gpu:%d, which does not exist, %s", chosen, l.total())
		}
	}
	switch {
	case len(l.entries) == 0:
		return nil, core.Errorf(core.DeviceError, "device", "there is no GPU: %s", l.reason())
	case index >= len(l.entries):
		return nil, core.Errorf(core.DeviceError, "device", "gpu:%d does not exist, %s", index, l.total())
	}
	e := l.entries[index]
	first := e.adapters[0]
	if e.refused != "" {
		return nil, core.Errorf(core.DeviceError, "device", "gpu:%d (%s) cannot be opened: PLAIT_GPU_DRIVER asks for the driver %s: %s",
			index, first.Name, e.refused, l.whyNot(e, e.refused))
	}
	left := &entry{adapters: e.adapters, why: maps.Clone(e.why)}
	var failed []string
	for {
		a := left.adapters[0]
		a.reason = l.driverReason(left)
		d, err := newDevice(index, ordinal, a)
		if err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.entries[index] = left
			return d, nil
		}
		failed = append(failed, a.driver.Name()+": "+err.Error())
		left.why[a.driver.Name()] = err.Error()
		if left.adapters = left.adapters[1:]; len(left.adapters) == 0 {
			break
		}
	}
	return nil, core.Errorf(core.DeviceError, "device", "%s:%d (%s) cannot be opened: %s", first.word(), index, first.Name, strings.Join(failed, "; "))
}

// total says how many GPUs there are.
func (l *listing) total() string {
	if n := len(l.entries); n != 1 {
		return fmt.Sprintf("there are %d GPUs", n)
	}
	return "there is 1 GPU"
}

// driverOf returns the name of the driver that runs the GPU with an index, or will run it.
func (l *listing) driverOf(index int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index < 0 || index >= len(l.entries) {
		return ""
	}
	return l.entries[index].adapters[0].driver.Name()
}

// reason returns in one line why there is no GPU. It is empty if there is one.
func (l *listing) reason() string {
	if len(l.entries) > 0 {
		return ""
	}
	var parts []string
	names := driverNames
	if l.choice.every != "" {
		names = []string{l.choice.every}
		parts = append(parts, "PLAIT_GPU_DRIVER asks for "+l.choice.every)
	}
	if l.software != "" {
		return strings.Join(append(parts, "the only adapter is "+l.software+", which computes on the CPU; PLAIT_SOFTWARE_GPU=1 allows it"), "; ")
	}
	for _, name := range names {
		parts = append(parts, name+": "+l.missing(name))
	}
	return strings.Join(parts, "; ")
}

// missing says why a driver has no GPU.
func (l *listing) missing(name string) string {
	for _, d := range l.drivers {
		switch {
		case d.Name() != name:
			continue
		case d.Missing() != "":
			return d.Missing()
		case name == webgpuDriver:
			return "the Vulkan loader found no adapter: a GPU, its driver for Vulkan, or the right to use the GPU is missing"
		}
		return "it found no GPU"
	}
	return "this program was built without it"
}

// driverReason says why other drivers than its first do not run a GPU.
func (l *listing) driverReason(e *entry) string {
	var reasons []string
	for _, name := range driverNames {
		if name != e.adapters[0].driver.Name() {
			reasons = append(reasons, name+": "+l.whyNot(e, name))
		}
	}
	return strings.Join(reasons, "; ")
}

// whyNot says why a driver does not run a GPU.
func (l *listing) whyNot(e *entry, name string) string {
	switch {
	case e.why[name] != "":
		return e.why[name]
	case l.choice.every != "" && l.choice.every != name:
		return "PLAIT_GPU_DRIVER asks for " + l.choice.every
	case l.counts[name] == 0:
		return l.missing(name)
	case slices.ContainsFunc(e.adapters, func(a adapter) bool { return a.driver.Name() == name }):
		return e.adapters[0].driver.Name() + " comes first"
	}
	return "it lists no GPU with the UUID of this one"
}
