package bind

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/flight"
	"github.com/plait-ml/plait/parallel/process"
)

// FlightRecordTake returns the last operations of all ranks of a world of processes, or of the world of a group whose ranks are threads:
// a list of one record. It waits for no rank, and for other processes for at most timeout, in nanoseconds; 0 means 5 seconds.
//
//plait:waits
func FlightRecordTake(of Object, timeout int64) (status Object) {
	defer protect("flight_recorder", &status)
	if w, ok := handle.Object[*process.World](of); ok {
		return handle.AddObject([]*flight.Record{w.FlightRecord(time.Duration(timeout))})
	}
	return handle.AddObject([]*flight.Record{group(of).FlightRecord()})
}

// FlightRecordRead returns the records whose files are in a folder, or of a file: one for each world, the latest last.
//
//plait:waits
func FlightRecordRead(path string) (status Object) {
	defer protect("flight_records", &status)
	records, err := flight.Read(path)
	if err != nil {
		return failf(core.IOError, "flight_records", "%w", err)
	}
	return handle.AddObject(records)
}

// FlightRecordCount returns the number of records of a list.
func FlightRecordCount(h Object) (status int64) {
	defer protect("flight_records", &status)
	records, _ := handle.Object[[]*flight.Record](h)
	return int64(len(records))
}

// FlightRecordText returns a record of a list: for form 0 as JSON, 1 as a table, and 2 as a trace, in JSON for ui.perfetto.dev.
func FlightRecordText(h Object, i, form int64) string {
	records, ok := handle.Object[[]*flight.Record](h)
	if !ok || i < 0 || i >= int64(len(records)) {
		return ""
	}
	switch form {
	case 0:
		return string(records[i].JSON())
	case 1:
		return records[i].Table()
	default:
		return string(records[i].Trace())
	}
}

// GroupWriteFlightRecords sets the folder in which the process writes its part of a record when a rank is lost, does not come in time or
// disagrees, for all groups of the world. An empty one means that nothing is written.
func GroupWriteFlightRecords(h Object, folder string) (status Status) {
	defer protect("init_process_group", &status)
	group(h).WriteFlightRecords(folder)
	return 0
}

// GroupWarnOfStragglers sets which stragglers [WarningsTake] tells of, for all groups of the world: ranks that come last in more than a
// share of the collectives of a window, and whose lateness is more than lost, a share too, of its time. A window has at least so many
// collectives, and takes at least period nanoseconds. 0 means the default of each.
func GroupWarnOfStragglers(h Object, on bool, share, lost float64, collectives, period int64) (status Status) {
	defer protect("warn_of_stragglers", &status)
	return failure(group(h).WarnOfStragglers(collective.Stragglers{Off: !on, Share: share, Lost: lost, Collectives: int(collectives),
		Period: time.Duration(period)}))
}

// keptWarnings is the number of warnings that wait for [WarningsTake].
const keptWarnings = 16

var warnings struct {
	due atomic.Int64 // length of the list
	sync.Mutex
	list []string
}

// warn keeps a warning of the collectives for [WarningsTake].
func warn(text string) {
	warnings.Lock()
	defer warnings.Unlock()
	warnings.list = append(warnings.list[max(len(warnings.list)+1-keptWarnings, 0):], strings.TrimSuffix(text, "\n"))
	warnings.due.Store(int64(len(warnings.list)))
}

// WarningsDue returns the number of warnings that nobody has taken.
func WarningsDue() int64 { return warnings.due.Load() }

// WarningsTake returns the warnings of all worlds of the process that nobody has taken, in lines.
func WarningsTake() string {
	warnings.Lock()
	defer warnings.Unlock()
	text := strings.Join(warnings.list, "\n")
	warnings.list = nil
	warnings.due.Store(0)
	return text
}
