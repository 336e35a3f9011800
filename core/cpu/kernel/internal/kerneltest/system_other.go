//go:build !linux

package kerneltest

import "time"

// threadTime returns the wall time, because the time of a thread is not available on every system.
func threadTime() time.Duration { return time.Duration(time.Now().UnixNano()) }

func hugePages([]byte) {}
