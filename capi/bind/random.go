package bind

import (
	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
)

// ManualSeed restarts every random generator of the calling rank from seed.
func ManualSeed(seed int64) Status {
	core.ManualSeed(uint64(seed))
	return 0
}

// ManualSeedKind restarts the calling rank's random generators for devices of a kind, such as "gpu", from seed.
func ManualSeedKind(kind string, seed int64) Status {
	core.ManualSeedKind(kind, uint64(seed))
	return 0
}

// GeneratorNew returns a random generator at the start of the seed's sequence.
func GeneratorNew(seed int64) Object { return handle.AddObject(core.NewGenerator(uint64(seed))) }

// GeneratorDefault returns the calling rank's generator for a device.
func GeneratorDefault(on Device) Object {
	d := device(on)
	if d == nil {
		return failf(core.DeviceError, "generator", "%d is not the number of an open device", on)
	}
	return handle.AddObject(core.CurrentContext().Generator(d))
}

// GeneratorSeed moves a generator to the start of another sequence.
func GeneratorSeed(g Object, seed int64) Status {
	v := generator(g)
	if v == nil {
		return noGenerator(g)
	}
	v.Seed(uint64(seed))
	return 0
}

// GeneratorState writes the seed and the position of a generator to state, which has room for two.
func GeneratorState(g Object, state IntsOut) Status {
	v := generator(g)
	if v == nil {
		return noGenerator(g)
	}
	seed, offset := v.State()
	out := handle.Slice[int64](state, 2)
	out[0], out[1] = int64(seed), int64(offset)
	return 0
}

// GeneratorSetState moves a generator to a state that [GeneratorState] returned.
func GeneratorSetState(g Object, seed int64, offset int64) Status {
	v := generator(g)
	if v == nil {
		return noGenerator(g)
	}
	v.SetState(uint64(seed), uint64(offset))
	return 0
}

// GeneratorFork returns a generator whose sequence depends on the state of another and on key alone.
func GeneratorFork(g Object, key int64) Object {
	v := generator(g)
	if v == nil {
		return noGenerator(g)
	}
	return handle.AddObject(v.Fork(uint64(key)))
}

func noGenerator(g Object) Status {
	return failf(core.TypeError, "generator", "%d is not the handle of a generator", g)
}

// A worker is the context of a helper thread.
type worker struct{ context *core.Context }

func (w *worker) Close() { w.context.Free() }

// WorkerNew returns a context for a helper thread of the calling thread's rank, with random generators of its own that
// start from seed. [WorkerMode] makes it a thread's; release it when nothing runs in it any more.
func WorkerNew(seed int64) Object {
	return handle.AddObject(&worker{core.CurrentContext().Worker(uint64(seed))})
}

// WorkerMode returns the calling thread's mode with a worker's context, for [ModeSet].
func WorkerMode(h Object) int64 {
	w, ok := handle.Object[*worker](h)
	if !ok {
		return ModeGet()
	}
	return int64(core.CurrentMode().WithContext(w.context))
}
