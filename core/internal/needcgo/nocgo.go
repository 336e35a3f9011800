//go:build !cgo

package needcgo

var _ = plait_needs_cgo__set_CGO_ENABLED_1_and_install_a_C_compiler
