package core

import (
	"sync"
	"sync/atomic"
)

// Autocast is a part of the [Mode]: for each kind of device whether it is on and in which dtype, and whether casts of
// parameters are remembered. Which operations cast is said by their rows in package op.
const (
	modeCastCPU Mode = 1 << 3
	modeCastGPU Mode = 1 << 4
	// The dtypes at first are bfloat16 on CPU devices and float16 on others; these bits exchange the two.
	modeCastCPUOther Mode = 1 << 5
	modeCastGPUOther Mode = 1 << 6
	modeCastNoCache  Mode = 1 << 7
)

// castBits returns the bits of a kind of device: whether autocast is on, and which dtype it has.
func castBits(kind string) (on, other Mode, dtypes [2]DType) {
	if kind == "cpu" {
		return modeCastCPU, modeCastCPUOther, [2]DType{BFloat16, Float16}
	}
	return modeCastGPU, modeCastGPUOther, [2]DType{Float16, BFloat16}
}

// autocasts says that autocast has been on in this process, for a look at it that costs nothing in those where it never is.
var autocasts atomic.Bool

// Autocasts reports whether autocast has ever been on in this process.
func Autocasts() bool { return autocasts.Load() }

// Autocasting reports whether autocast is on for some kind of device.
func (m Mode) Autocasting() bool { return m&(modeCastCPU|modeCastGPU) != 0 }

// Autocast reports whether autocast is on for devices of the kind: "cpu", or anything else for all others.
func (m Mode) Autocast(kind string) bool {
	on, _, _ := castBits(kind)
	return m&on != 0
}

// WithAutocast returns m with autocast on or off for devices of the kind.
func (m Mode) WithAutocast(kind string, on bool) Mode {
	bit, _, _ := castBits(kind)
	if on {
		autocasts.Store(true)
		return m | bit
	}
	return m &^ bit
}

// AutocastDType returns the dtype that autocast has on devices of the kind, also where it is off.
func (m Mode) AutocastDType(kind string) DType {
	_, other, dtypes := castBits(kind)
	if m&other != 0 {
		return dtypes[1]
	}
	return dtypes[0]
}

// WithAutocastDType returns m with the dtype, float16 or bfloat16, for autocast on devices of the kind.
func (m Mode) WithAutocastDType(kind string, d DType) (Mode, error) {
	_, other, dtypes := castBits(kind)
	switch d {
	case dtypes[0]:
		return m &^ other, nil
	case dtypes[1]:
		return m | other, nil
	}
	return m, Errorf(DTypeError, "autocast", "got %v, want float16 or bfloat16", d)
}

// AutocastCache reports whether the casts of parameters are remembered.
func (m Mode) AutocastCache() bool { return m&modeCastNoCache == 0 }

// WithAutocastCache returns m with the memory of casts on or off.
func (m Mode) WithAutocastCache(on bool) Mode {
	if on {
		return m &^ modeCastNoCache
	}
	return m | modeCastNoCache
}

// WithoutAutocast returns m with autocast off for every kind of device.
func (m Mode) WithoutAutocast() Mode { return m &^ (modeCastCPU | modeCastGPU) }

// WithAutocastOf returns m with everything about autocast as in o.
func (m Mode) WithAutocastOf(o Mode) Mode {
	const all = modeCastCPU | modeCastGPU | modeCastCPUOther | modeCastGPUOther | modeCastNoCache
	return m&^all | o&all
}

// Autocast runs fn with autocast on for devices of the kind: operations that lose little by it compute in d, float16 or
// bfloat16, and others in float32. The casts of parameters are remembered until the outermost such call of the rank
// ends.
func Autocast(kind string, d DType, fn func()) error {
	m, err := CurrentMode().WithAutocastDType(kind, d)
	if err != nil {
		return err
	}
	WithMode(func(now Mode) Mode { return now.WithAutocastOf(m).WithAutocast(kind, true) }, func() {
		ctx := CurrentContext()
		ctx.EnterAutocast()
		defer ctx.LeaveAutocast()
		fn()
	})
	return nil
}

// castCache remembers the casts of a rank's parameters.
type castCache struct {
	mu     sync.Mutex
	nested int // regions entered and not left
	casts  map[castKey]cachedCast
}

type castKey struct {
	autograd *AutogradMeta // the parameter, whichever tensor stands for it
	dtype    DType
	grad     bool // whether the cast has a place in the graph
}

type cachedCast struct {
	version uint32 // of the parameter's memory when it was cast
	storage *Storage
	life    uint32 // of the storage, which may be used again for other memory of the parameter
	tensor  *Tensor
}

// EnterAutocast begins a region at whose end casts are forgotten, if no other surrounds it. It returns how many surround
// the code now.
func (c *Context) EnterAutocast() int {
	k := &c.shared.casts
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nested++
	return k.nested
}

// LeaveAutocast ends a region and returns how many surround the code now.
func (c *Context) LeaveAutocast() int {
	k := &c.shared.casts
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nested = max(k.nested-1, 0)
	if k.nested == 0 {
		k.clear()
	}
	return k.nested
}

// ClearAutocastCache forgets the casts of the rank's parameters.
func (c *Context) ClearAutocastCache() {
	k := &c.shared.casts
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clear()
}

func (k *castCache) clear() {
	for key, e := range k.casts {
		e.tensor.Release()
		key.autograd.release()
	}
	clear(k.casts)
}

// CachedCast returns t cast to d by convert, for an operation that gives the result up after use. What convert made of a
// parameter in float32 is remembered until the region ends or the parameter changes.
func (m Mode) CachedCast(t *Tensor, d DType, convert func() *Tensor) *Tensor {
	meta := t.autograd.Load()
	if !m.AutocastCache() || t.dtype != Float32 || meta == nil || t.view.Load() != nil || !t.RequiresGrad() || !t.IsLeaf() {
		return convert()
	}
	k := &m.Context().shared.casts
	key := castKey{meta, d, m.GradEnabled()}
	if old := k.get(key, t); old != nil {
		return old
	}
	made := convert()
	if made.Err() == nil {
		k.put(key, t, made)
	}
	return made
}

func (k *castCache) get(key castKey, t *Tensor) *Tensor {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.casts[key]
	if s := t.storage; !ok || e.storage != s || e.life != s.Generation() || e.version != s.Version() {
		return nil
	}
	return e.tensor.Alias(true)
}

func (k *castCache) put(key castKey, t, made *Tensor) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nested == 0 {
		return // nobody would forget it
	}
	if e, ok := k.casts[key]; ok {
		e.tensor.Release()
	} else {
		key.autograd.retain()
	}
	if k.casts == nil {
		k.casts = map[castKey]cachedCast{}
	}
	k.casts[key] = cachedCast{t.storage.Version(), t.storage, t.storage.Generation(), made.Alias(true).Keep()}
}
