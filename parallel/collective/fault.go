package collective

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/flight"
)

const (
	keptFaults = 16
	// recordPause is the time between two records of a process. One fault makes many operations fail; those of the time in between come with
	// the second record.
	recordPause = time.Second
	// sameFault is the time within which equal errors count as one.
	sameFault = 10 * time.Second
	// recordWait is how long an operation that fails waits for the file that its error names.
	recordWait = time.Second
)

// A flightLog writes records when ranks are lost, late or disagree.
type flightLog struct {
	size   int // operations kept of each rank in each group
	number atomic.Uint64
	folder atomic.Pointer[string] // nil if nothing is written

	mu      sync.Mutex
	faults  []flight.Fault
	written time.Time     // begin of the last record
	due     *time.Timer   // for another one; nil if none is due
	records int           // under way and due
	idle    chan struct{} // closed when there are none; nil before the first

	file   sync.Mutex // held while a part is written
	latest int64      // the time of the part in the file
}

// newFlightLog sets what options leave open from the environment.
func newFlightLog(o Options) *flightLog {
	l := &flightLog{size: defaultRecorded}
	if n, err := recorded(); err == nil {
		l.size = n
	}
	l.number.Store(rand.Uint64())
	folder := o.FlightRecords
	if folder == "" {
		folder = os.Getenv("PLAIT_FLIGHT_RECORDER")
	}
	l.writeTo(folder)
	return l
}

// defaultRecorded is the number of operations that are kept of each rank in each group, unless the environment says otherwise.
const defaultRecorded = 64

func recorded() (int, error) {
	return core.EnvNumber("PLAIT_FLIGHT_RECORDER_SIZE", 1, 1<<20, defaultRecorded)
}

func (l *flightLog) writeTo(folder string) {
	if folder == "" {
		l.folder.Store(nil)
		return
	}
	if whole, err := filepath.Abs(folder); err == nil { // errors name it
		folder = whole
	}
	l.folder.Store(&folder)
}

// world identifies the world in records.
func (l *flightLog) world() string { return fmt.Sprintf("%08x", uint32(l.number.Load())) }

// known returns the last faults.
func (l *flightLog) known() []flight.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]flight.Fault(nil), l.faults...)
}

// WriteFlightRecords sets the folder of [Options.FlightRecords] for this process. Empty means that nothing is written.
func (g *Group) WriteFlightRecords(folder string) { g.local.rendezvous.world.flight.writeTo(folder) }

// recordedIn begins what an error says of the file of its record.
const recordedIn = "the flight record is in "

// fault records an error that ends an operation because of another rank, and returns it with the name of the file of the record, if there is
// one. It waits for the file for a limited time.
func (w *world) fault(err error) error {
	if kind, known := core.KindOf(err); known && kind != core.DistributedError || IsRevoked(err) {
		return err
	}
	folder := w.record(err.Error(), true)
	if folder == "" || strings.Contains(err.Error(), recordedIn) {
		return err
	}
	return core.Errorf(core.DistributedError, "", "%w; %s%s", err, recordedIn, flight.File(folder, w.flight.world(), w.process))
}

// record writes this process's part of a record because of a fault, and with tell has the other processes write theirs. It returns the folder,
// or an empty string if nothing is written.
func (w *world) record(why string, tell bool) string {
	l := w.flight
	if i := strings.Index(why, recordedIn); i >= 0 { // another process's file
		why = strings.TrimRight(why[:i], "; ")
	}
	now := wallClock(clockNow())
	l.mu.Lock()
	again := slices.ContainsFunc(l.faults, func(f flight.Fault) bool { return f.Error == why && now-f.Time < int64(sameFault) })
	if n := len(l.faults); !again {
		l.faults = append(l.faults[max(n+1-keptFaults, 0):], flight.Fault{Time: now, Error: why})
	}
	folder := l.folder.Load()
	if folder == nil || again || l.due != nil {
		l.mu.Unlock()
		return w.folder()
	}
	if l.records++; l.records == 1 {
		l.idle = make(chan struct{})
	}
	if pause := recordPause - time.Since(l.written); pause > 0 {
		l.due = time.AfterFunc(pause, func() { w.writeRecord(nil) })
		l.mu.Unlock()
		return *folder
	}
	l.written = time.Now()
	l.mu.Unlock()
	if tell {
		m := writer{byte(faulted)}
		m.bytes([]byte(why))
		w.tellAll(m)
	}
	part, done := w.part(true), make(chan struct{})
	go func() {
		defer close(done)
		w.writeRecord(part)
	}()
	select {
	case <-done:
	case <-time.After(recordWait):
	}
	return *folder
}

// folder returns the folder of records, or an empty string.
func (w *world) folder() string {
	if folder := w.flight.folder.Load(); folder != nil {
		return *folder
	}
	return ""
}

// writeRecord writes a part, or for nil what is known now.
func (w *world) writeRecord(part *flight.Part) {
	l := w.flight
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.records--; l.records == 0 {
			close(l.idle)
		}
	}()
	if part == nil {
		l.mu.Lock()
		l.due, l.written = nil, time.Now()
		l.mu.Unlock()
		part = w.part(true)
	}
	if folder := w.folder(); folder != "" {
		if err := l.write(part, folder); err != nil {
			w.warnOf(fmt.Sprintf("the flight record cannot be written: %v\n", err))
		}
	}
}

// write writes a part, unless a later one has been written.
func (l *flightLog) write(part *flight.Part, folder string) error {
	l.file.Lock()
	defer l.file.Unlock()
	if part.Time < l.latest {
		return nil
	}
	l.latest = part.Time
	return part.Write(folder)
}

// awaitRecords writes the record that is due, and waits for those that are being written, for a limited time.
func (w *world) awaitRecords() {
	l := w.flight
	l.mu.Lock()
	idle, early := l.idle, l.due != nil && l.due.Stop()
	l.mu.Unlock()
	if early {
		go w.writeRecord(nil)
	}
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(recordWait):
	}
}
