// Package process joins the ranks of this process and those of other processes in one world.
//
// A launcher starts the processes, on one machine or several, and MPI carries their messages and data (package mpi). The collectives are those of
// ranks that are threads, with the same bits (package collective). A process can have several ranks. MPI does not say that a process has died, so
// a channel beside it does (package control).
//
//	world, err := process.Join(process.Options{})
//	...
//	defer world.Close()
//	group := world.Groups()[0]
package process

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/internal/control"
	"github.com/plait-ml/plait/parallel/mpi"
)

// Options say which world a process joins. The zero value is right for a process with one rank that a launcher started.
type Options struct {
	// Ranks is the number of this process's ranks, which are threads. 0 means one.
	Ranks int
	// MPI says which library of MPI is used, and which of its processes join.
	MPI mpi.Options
	// HeartbeatTimeout is how long a process may be silent before it counts as lost. 0 means 30 seconds.
	HeartbeatTimeout time.Duration
	// JoinTimeout is how long Join waits for the other processes. 0 means 5 minutes.
	JoinTimeout time.Duration
	// Options are those of the group of all ranks.
	collective.Options
}

// A World is this process's part in a world of processes.
type World struct {
	*collective.World
	processes int
	control   *control.Channel // nil in a world of one process
}

// joinTimeout is how long Join waits for the other processes by default.
const joinTimeout = 5 * time.Minute

// Join makes this process a part of the world of all processes that the launcher started, and waits for them. Every one of them calls it. A
// process can join several worlds, one after the other; the first one, which initialises MPI, must be the last to close.
//
// Errors: there is no library of MPI, or it does not fit the launcher; a process did not join in time; versions of the engine differ.
func Join(o Options) (*World, error) {
	if o.HeartbeatTimeout < 0 || o.JoinTimeout < 0 {
		return nil, core.Errorf(core.ValueError, "world", "got a heartbeat timeout of %v and a timeout of joining of %v, want positive ones",
			o.HeartbeatTimeout, o.JoinTimeout)
	}
	o.JoinTimeout = cmp.Or(o.JoinTimeout, joinTimeout)
	deadline := time.Now().Add(o.JoinTimeout)
	o.MPI.Timeout, o.Options.JoinTimeout = o.JoinTimeout, o.JoinTimeout
	t, err := mpi.Join(o.MPI)
	if err != nil {
		return nil, core.Errorf(core.DistributedError, "world", "%w", err)
	}
	watched := &watchedTransport{Transport: t}
	inner, err := collective.JoinWorld(watched, max(o.Ranks, 1), o.Options)
	if err != nil {
		return nil, err
	}
	w := &World{World: inner, processes: t.Processes()}
	if w.processes > 1 {
		if w.control, err = w.openControl(o.HeartbeatTimeout, time.Until(deadline)); err != nil {
			return nil, errors.Join(err, w.Close())
		}
		watched.watch()
	}
	return w, nil
}

// openControl opens the channel that tells which processes are lost.
func (w *World) openControl(timeout, limit time.Duration) (*control.Channel, error) {
	c, err := control.Join(control.Options{
		Process: w.Process(), Processes: w.processes, HeartbeatTimeout: timeout,
		Exchange: func(payload []byte) ([][]byte, error) { return w.exchange(payload, limit) },
		Status:   func() []byte { return []byte(w.Status()) },
		Answer:   w.answer,
		OnLost: func(process int, err error) {
			if process == w.Process() {
				w.abort(err)
				return
			}
			w.Lose(process, err)
		},
	})
	if err != nil {
		return nil, core.Errorf(core.DistributedError, "world", "%w", err)
	}
	return c, nil
}

// exchange gives every process the payloads of all, by an exchange of all ranks.
func (w *World) exchange(payload []byte, limit time.Duration) ([][]byte, error) {
	groups := w.Groups()
	texts, errs := make([][][]byte, len(groups)), make([]error, len(groups))
	var all sync.WaitGroup
	for i, g := range groups {
		all.Go(func() { texts[i], errs[i] = g.WithTimeout(limit).Exchange(payload) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	list := make([][]byte, w.processes)
	for rank, text := range texts[0] {
		list[w.ProcessOf(rank)] = text
	}
	return list, nil
}

// Processes returns the number of processes.
func (w *World) Processes() int { return w.processes }

// Abort ends the parts of this process's ranks in the world because of err: operations of other ranks that need them fail with it.
func (w *World) Abort(err error) {
	w.abort(err)
	if w.control != nil {
		_ = w.control.Say([]byte(err.Error())) // others may be lost too
	}
}

func (w *World) abort(err error) {
	for _, g := range w.Groups() {
		g.Abort(err)
	}
}

// Close ends this process's part in the world, after its ranks' operations. Close waits for the other processes to come to it, for a limited time.
func (w *World) Close() error {
	var errs []error
	for _, g := range w.Groups() {
		errs = append(errs, g.Close())
	}
	errs = append(errs, w.World.Close()) // waits for the others, and must hear of those that are lost
	if w.control != nil {
		_ = w.control.Leave() // nothing depends on who hears it
	}
	return errors.Join(errs...)
}
