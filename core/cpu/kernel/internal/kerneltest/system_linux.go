package kerneltest

import (
	"syscall"
	"time"
	"unsafe"
)

// threadTime returns the processor time of the calling thread.
func threadTime() time.Duration {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano())
}

// hugePages asks for huge pages. It is a hint, so errors do not matter.
func hugePages(memory []byte) {
	const madviseHugePage = 14
	_ = syscall.Madvise(memory, madviseHugePage)
}
