// Package needcgo makes a build without cgo stop here, with one line that says so: every package with kernels imports it
// through core, and would fail with many.
package needcgo
