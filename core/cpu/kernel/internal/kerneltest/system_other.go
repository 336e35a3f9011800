//go:build !linux

package kerneltest

import "time"

// threadTime returns the time: that of threads is not to be had everywhere.
func threadTime() time.Duration { return time.Duration(time.Now().UnixNano()) }

func hugePages([]byte) {}
