package control

import (
	"fmt"
	"time"
)

// A Reason says how a process was lost.
type Reason uint8

const (
	Exited Reason = iota + 1 // its connection has closed and its port refuses
	Silent                   // nothing has been heard from it for the timeout
)

// A Loss is the error of a lost process.
type Loss struct {
	Process int
	Host    string
	Reason  Reason
	By      int           // the process that noticed
	Silence time.Duration // for Silent
	Alone   bool          // the noticing process heard from nobody else either
	Status  []byte        // the last one known, or nil
	Words   []byte        // its last words, or nil
}

func (l *Loss) Error() string {
	s := fmt.Sprintf("process %d on host %s ", l.Process, l.Host)
	if l.Reason == Exited {
		s += "exited or was killed (connection closed)"
	} else {
		s += fmt.Sprintf("has not been heard from by process %d for %v (hung host or network cut)", l.By, l.Silence.Round(time.Millisecond))
		if l.Alone {
			s += fmt.Sprintf("; process %d heard from no other process either, so its own network may be cut", l.By)
		}
	}
	if len(l.Words) > 0 {
		s += fmt.Sprintf("; its last words: %s", l.Words)
	}
	if len(l.Status) > 0 {
		s += fmt.Sprintf("; its last known status: %s", l.Status)
	}
	return s
}

// GivenUp is the error with which [Options.OnLost] is called for the own process when the others have given it up.
type GivenUp struct {
	Process int
	Cause   string // the error that the others got
}

func (g *GivenUp) Error() string {
	return fmt.Sprintf("the others have given up this process, %d: %s", g.Process, g.Cause)
}
