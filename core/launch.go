package core

import "sync/atomic"

// synchronous makes every launch wait for its call; see [Synchronous].
var synchronous atomic.Bool

// Synchronous makes streams wait for every call, as PLAIT_SYNC demands, and [Launch] return its error.
func Synchronous() { synchronous.Store(true) }

// Launch launches a call on the stream of its Begin. If an operand has no memory or the device refuses the call, Launch returns the error
// and the outputs fail. In synchronous mode Launch waits for the call and returns its execution error. It then runs one call of a stream at
// a time, so that the error is not another thread's.
func Launch(s Stream, c *Call) error {
	err := c.Err()
	if err == nil && c.pairs {
		err = c.fitPairs()
	}
	if err == nil {
		err = s.Refuse(c)
	}
	if err != nil {
		c.Fail(err)
		s.Abandon(c)
		return err
	}
	if !synchronous.Load() {
		s.Launch(c)
		return nil
	}
	turn := &c.calls.turn
	Lock(turn)
	defer turn.Unlock()
	s.Launch(c)
	return s.TakeError()
}
