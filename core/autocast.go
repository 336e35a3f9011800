package core

import (
	"sync"
)

// Autocast is part of the [Mode]. For each kind of device the bits say whether it is on and in which dtype; one more bit turns the cache of
// cast parameters off. The registry's rows in package op say which operations cast.
const (
	modeCastCPU Mode = 1 << 3
	modeCastGPU Mode = 1 << 4
	// The default dtype is bfloat16 on CPU devices and float16 on others. These bits select the other one.
	modeCastCPUOther Mode = 1 << 5
	modeCastGPUOther Mode = 1 << 6
	modeCastNoCache  Mode = 1 << 7
)

// castBits returns the bits of a kind of device (on, other dtype), and its default and other dtype.
func castBits(kind string) (on, other Mode, dtypes [2]DType) {
	if kind == "cpu" {
		return modeCastCPU, modeCastCPUOther, [2]DType{BFloat16, Float16}
	}
	return modeCastGPU, modeCastGPUOther, [2]DType{Float16, BFloat16}
}

// Autocasting reports whether autocast is on for some kind of device.
func (m Mode) Autocasting() bool { return m&(modeCastCPU|modeCastGPU) != 0 }

// Autocast reports whether autocast is on for devices of the kind. The kinds are "cpu" and all others.
func (m Mode) Autocast(kind string) bool {
	on, _, _ := castBits(kind)
	return m&on != 0
}

// WithAutocast returns m with autocast on or off for devices of the kind.
func (m Mode) WithAutocast(kind string, on bool) Mode {
	bit, _, _ := castBits(kind)
	if on {
		return m | bit
	}
	return m &^ bit
}

// AutocastDType returns the dtype of autocast on devices of the kind, also while autocast is off.
func (m Mode) AutocastDType(kind string) DType {
	_, other, dtypes := castBits(kind)
	if m&other != 0 {
		return dtypes[1]
	}
	return dtypes[0]
}

// WithAutocastDType returns m with d, float16 or bfloat16, as the dtype of autocast on devices of the kind.
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

// AutocastCache reports whether casts of parameters are cached.
func (m Mode) AutocastCache() bool { return m&modeCastNoCache == 0 }

// WithAutocastCache returns m with the cache of casts on or off.
func (m Mode) WithAutocastCache(on bool) Mode {
	if on {
		return m &^ modeCastNoCache
	}
	return m | modeCastNoCache
}

// WithoutAutocast returns m with autocast off for every kind of device.
func (m Mode) WithoutAutocast() Mode { return m &^ (modeCastCPU | modeCastGPU) }

// WithAutocastOf returns m with the autocast settings of o.
func (m Mode) WithAutocastOf(o Mode) Mode {
	const all = modeCastCPU | modeCastGPU | modeCastCPUOther | modeCastGPUOther | modeCastNoCache
	return m&^all | o&all
}

// Autocast runs fn with autocast on for devices of the kind. Operations that are safe in low precision compute in d, which is float16 or
// bfloat16; the others compute in float32. Casts of parameters are cached until the rank's outermost autocast region ends.
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

// castCache holds the casts of a rank's parameters.
type castCache struct {
	mu     sync.Mutex
	nested int // depth of nested autocast regions
	casts  map[castKey]cachedCast
}

type castKey struct {
	autograd *AutogradMeta // of the parameter; all aliases share it
	dtype    DType
	grad     bool // whether the cast was recorded in the graph
}

type cachedCast struct {
	version uint32 // of the parameter's storage at the time of the cast
	storage *Storage
	life    uint32     // [Storage.Generation], since storages are recycled
	tensor  *Tensor    // nil if the parameter was used, and not cast
	made    *Recording // in progress when the cast was made: a replay does not make the casts that a recording found
}

// EnterAutocast begins an autocast region and returns the new depth of nested regions. The end of the outermost region clears the cache.
func (c *Context) EnterAutocast() int {
	k := &c.shared.casts
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nested++
	return k.nested
}

// LeaveAutocast ends an autocast region and returns the remaining depth.
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

// ClearAutocastCache clears the cache of the rank's casts.
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

// CachedCast returns t cast to d by convert. The caller releases the result. The cast of a float32 parameter is cached until the autocast
// region ends or the parameter changes.
func (m Mode) CachedCast(t *Tensor, d DType, convert func() *Tensor) *Tensor {
	key, ok := m.castKey(t, d)
	if !ok {
		return convert()
	}
	k := &m.Context().shared.casts
	if old := k.get(key, t); old != nil {
		return old
	}
	made := convert()
	if made.Err() == nil {
		k.put(key, t, made)
	}
	return made
}

// CastsFirst reports whether this is the first time that t is to be cast to d in the autocast region, or casts of it are not cached. An
// operation that can convert t by itself does so then: a cast is made where it is used again.
func (m Mode) CastsFirst(t *Tensor, d DType) bool {
	key, ok := m.castKey(t, d)
	if !ok {
		return true
	}
	k := &m.Context().shared.casts
	if k.knows(key, t) {
		return false
	}
	k.put(key, t, nil)
	return true
}

// castKey returns the key of t's cast, which is cached if t is a float32 parameter.
func (m Mode) castKey(t *Tensor, d DType) (key castKey, ok bool) {
	meta := t.autograd.Load()
	ok = m.AutocastCache() && t.dtype == Float32 && meta != nil && t.view.Load() == nil && t.RequiresGrad() && t.IsLeaf()
	return castKey{meta, d, m.GradEnabled()}, ok
}

func (k *castCache) get(key castKey, t *Tensor) *Tensor {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.casts[key]; e.tensor != nil && e.of(t) {
		return e.tensor.Alias(true)
	}
	return nil
}

func (k *castCache) knows(key castKey, t *Tensor) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.casts[key].of(t)
}

// of reports whether t has not changed since.
func (e cachedCast) of(t *Tensor) bool {
	s := t.storage
	return e.storage == s && e.life == s.Generation() && e.made == CurrentRecording() && e.version == s.Version()
}

// put remembers a cast of t, or with nil that t was used.
func (k *castCache) put(key castKey, t, made *Tensor) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nested == 0 {
		return // no region would clear it
	}
	if e, ok := k.casts[key]; ok {
		e.tensor.Release()
	} else {
		key.autograd.retain()
	}
	if k.casts == nil {
		k.casts = map[castKey]cachedCast{}
	}
	if made != nil {
		made = made.Alias(true).Keep()
	}
	k.casts[key] = cachedCast{t.storage.Version(), t.storage, t.storage.Generation(), made, CurrentRecording()}
}
