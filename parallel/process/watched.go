package process

import (
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/parallel/mpi"
)

// wordWait is how long the loss of a process that MPI has found waits for the channel's word on it. MPI knows only that a message failed.
const wordWait = 2 * time.Second

// A watchedTransport reports the losses that MPI finds late once there is a channel, which says more.
type watchedTransport struct {
	*mpi.Transport
	watched atomic.Bool
}

func (t *watchedTransport) watch() { t.watched.Store(true) }

// Lost implements [collective.Transport].
func (t *watchedTransport) Lost(f func(process int, err error)) {
	t.Transport.Lost(func(process int, err error) {
		if t.watched.Load() {
			time.AfterFunc(wordWait, func() { f(process, err) })
			return
		}
		f(process, err)
	})
}
