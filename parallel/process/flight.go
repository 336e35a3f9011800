package process

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/plait-ml/plait/parallel/flight"
)

// FlightTimeout is how long [World.FlightRecord] waits for other processes if no time is given.
const FlightTimeout = 5 * time.Second

// maxPart is the size of a process's part on its way to another one, in bytes. Older operations are left out.
const maxPart = 12 << 20

// FlightRecord returns the last operations of all ranks of all processes, in all groups. It may be called at any time from any goroutine, on one
// rank alone, while ranks wait for each other in a collective. The processes answer beside that. Those that do not within timeout are named in
// the record ([flight.Record.Missing]); it then has those calls of their ranks that this process has heard of. A timeout of 0 means
// [FlightTimeout].
func (w *World) FlightRecord(timeout time.Duration) *flight.Record {
	if timeout <= 0 {
		timeout = FlightTimeout
	}
	own := w.Part(true)
	parts, missing := []*flight.Part{own}, map[int]error{}
	if w.control == nil {
		return flight.Merge(parts, missing)
	}
	answers, errs := w.control.Collect(nil, timeout)
	for p, answer := range answers {
		if p == own.Process {
			continue
		}
		err := errs[p]
		if err == nil {
			var part flight.Part
			if err = json.Unmarshal(answer, &part); err == nil && part.Process == p {
				parts = append(parts, &part)
				continue
			}
			err = fmt.Errorf("its answer cannot be read: %v", err)
		}
		missing[p] = err
	}
	return flight.Merge(parts, missing)
}

// answer gives another process this one's part of a record.
func (w *World) answer([]byte) []byte { return w.Part(false).Encode(maxPart) }
