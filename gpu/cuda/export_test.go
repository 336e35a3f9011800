//go:build cgo && linux && amd64

package cuda

// OpenInstead has the driver open another library than the system's. It has no effect after the first use of the driver.
func OpenInstead(path string) { openInstead(path) }
