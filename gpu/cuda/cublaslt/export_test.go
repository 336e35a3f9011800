//go:build cgo && linux

package cublaslt

import "github.com/plait-ml/plait/gpu/driver"

// Forget makes the next Load search again.
func Forget() {
	loaded.Lock()
	defer loaded.Unlock()
	loaded.path, loaded.version = "", 0
}

// Plans returns how many shapes a handle knows.
func (h *Handle) Plans() int { return len(h.plans) }

// Describe gives the library the descriptors of a product, and what is asked of its algorithm. It needs no GPU.
func Describe(p *driver.Product) error { return describe(p) }
