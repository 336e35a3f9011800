package sharing

/*
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

// Opens a new file in memory, without a name.
static int plaitk_shared_file(uint64_t random) {
#ifdef __linux__
  (void)random;
  return memfd_create("plait", MFD_CLOEXEC);
#else
  char name[24];
  snprintf(name, sizeof name, "/plait-%llx", (unsigned long long)random);
  int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd >= 0) shm_unlink(name);
  return fd;
#endif
}
*/
import "C"

import (
	"syscall"
	"unsafe"

	"github.com/plait-ml/plait/core"
)

// create makes a file of the given size in memory. It has no name.
func create(size int, key Key) (int, error) {
	made, err := C.plaitk_shared_file(C.uint64_t(key[0]))
	if made < 0 {
		return -1, err
	}
	fd := int(made)
	syscall.CloseOnExec(fd)
	if err := syscall.Ftruncate(fd, int64(size)); err != nil {
		closeFD(fd)
		return -1, err
	}
	return fd, nil
}

func sizeOf(fd int) (int64, error) {
	var stat syscall.Stat_t
	err := syscall.Fstat(fd, &stat)
	return stat.Size, err
}

func duplicate(fd int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	made, err := syscall.Dup(fd)
	if err == nil {
		syscall.CloseOnExec(made)
	}
	return made, err
}

func mapped(fd, size int) (core.Memory, error) {
	b, err := syscall.Mmap(fd, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return core.Memory{}, failed("map", size, err)
	}
	return core.Memory{Ptr: unsafe.Pointer(&b[0]), Size: size}.Shadowed(), nil
}

func unmap(m core.Memory) {
	_ = syscall.Munmap(unsafe.Slice((*byte)(m.Ptr), m.Size)) // nobody is left to be told
}

func closeFD(fd int) { _ = syscall.Close(fd) }

// failed returns the error of a system call.
func failed(what string, size int, err error) error {
	switch err {
	case syscall.EMFILE, syscall.ENFILE:
		return core.Errorf(core.StateError, name, "too many open files: each storage in shared memory has one; share fewer, or raise the limit (ulimit -n)")
	case syscall.ENOMEM, syscall.ENOSPC:
		return core.Errorf(core.MemoryError, name, "cannot %s %d bytes of shared memory: %v", what, size, err)
	}
	return core.Errorf(core.StateError, name, "cannot %s %d bytes of shared memory: %v", what, size, err)
}
