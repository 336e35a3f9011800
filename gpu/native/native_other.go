//go:build !(cgo && ((linux && amd64) || darwin))

package native

import (
	"errors"
	"time"
)

// Unsupported is why there are no GPUs on this platform.
const Unsupported = "GPUs are supported on linux/amd64 and macOS"

var errUnsupported = errors.New(Unsupported)

// Adapters returns none.
func Adapters() []Adapter { return nil }

// Leave does nothing.
func Leave() bool { return true }

// The types and functions stand for those of the platforms with GPUs. None is ever made.
type (
	GPU      struct{ Limits Limits }
	Status   struct{}
	Buffer   struct{ Size int }
	Layout   struct{}
	Pipeline struct{}
	Group    struct{}
	List     struct{}
)

func Open(int) (*GPU, error)                                             { return nil, errUnsupported }
func (*GPU) Close()                                                      {}
func (*GPU) TakeError() error                                            { return errUnsupported }
func (*GPU) Lost() bool                                                  { return true }
func (*GPU) Poll()                                                       {}
func (*GPU) NewBuffer(Usage, int, bool) (*Buffer, error)                 { return nil, errUnsupported }
func (*GPU) NewLayout(int, int) *Layout                                  { return nil }
func (*GPU) NewPipeline(*Layout, string) (*Pipeline, error)              { return nil, errUnsupported }
func (*GPU) NewGroup(*Layout, *Buffer, int, []*Buffer) (*Group, error)   { return nil, errUnsupported }
func (*GPU) Submit(*List, *Buffer, []byte, Status)                       {}
func Pause(time.Duration)                                                {}
func NewStatus() Status                                                  { return Status{} }
func (Status) Free()                                                     {}
func (Status) Done() (done, failed bool)                                 { return true, true }
func (*Buffer) Release()                                                 {}
func (*Buffer) Map(bool, Status)                                         {}
func (*Buffer) Mapped() []byte                                           { return nil }
func (*Buffer) Unmap()                                                   {}
func (*Layout) Release()                                                 {}
func (*Pipeline) Release()                                               {}
func (*Group) Release()                                                  {}
func (*List) Len() int                                                   { return 0 }
func (*List) Reset()                                                     {}
func (*List) Dispatch(*Pipeline, *Group, uint32, uint32, uint32, uint32) {}
func (*List) Copy(*Buffer, int, *Buffer, int, int)                       {}
func (*List) Clear(*Buffer, int, int)                                    {}
