package flight

import (
	"encoding/json"
	"fmt"
	"slices"
)

// event is an entry of a trace in Chrome's format. Times are in microseconds.
type event struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Time     *float64       `json:"ts,omitempty"`
	Duration *float64       `json:"dur,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// Trace returns the record as JSON for ui.perfetto.dev and chrome://tracing. Each rank is a process there. It has a thread for each group, and
// further ones for operations that overlap. An operation is a slice from its call to its end; within it, "wait" is the time until all ranks had
// called it. What has not ended goes to the end of the record.
func (r *Record) Trace() []byte {
	start := r.Time
	for i := range r.Operations {
		start = min(start, r.Operations[i].Called)
	}
	micro := func(ns int64) *float64 {
		us := float64(ns) / 1000
		return &us
	}
	homes := map[int]Process{}
	for _, p := range r.Processes {
		for _, rank := range p.Ranks {
			homes[rank] = p
		}
	}
	type lane struct {
		rank   int
		group  string
		number int // among those of the group
		end    int64
	}
	var lanes []*lane
	events := []event{}
	for i := range r.Operations {
		o := &r.Operations[i]
		end := o.Ended
		if end == 0 {
			end = max(r.Time, o.Started)
		}
		end = max(end, o.Called)
		number, k := 0, -1
		for n, l := range lanes {
			if l.rank == o.Rank && l.group == o.GroupID {
				if number++; l.end <= o.Called && k < 0 {
					k = n
				}
			}
		}
		if k < 0 {
			if !slices.ContainsFunc(lanes, func(l *lane) bool { return l.rank == o.Rank }) {
				p := homes[o.Rank]
				events = append(events, event{Name: "process_name", Phase: "M", Process: o.Rank,
					Args: map[string]any{"name": fmt.Sprintf("rank %d (process %d on %s)", o.Rank, p.Process, p.Host)}},
					event{Name: "process_sort_index", Phase: "M", Process: o.Rank, Args: map[string]any{"sort_index": o.Rank}})
			}
			k = len(lanes)
			lanes = append(lanes, &lane{o.Rank, o.GroupID, number, 0})
			name := "group " + o.Group
			if number > 0 {
				name += fmt.Sprintf(" (%d)", number+1)
			}
			events = append(events, event{Name: "thread_name", Phase: "M", Process: o.Rank, Thread: k, Args: map[string]any{"name": name}})
		}
		lanes[k].end = end
		name := o.Name
		if o.Seq > 0 {
			name += fmt.Sprintf(" #%d", o.Seq)
		}
		args := map[string]any{"operation": o.Call(), "group": o.Group, "state": o.State, "bytes": o.Bytes}
		if o.Error != "" {
			args["error"] = o.Error
		}
		events = append(events, event{Name: name, Category: "collective", Phase: "X", Process: o.Rank, Thread: k,
			Time: micro(o.Called - start), Duration: micro(end - o.Called), Args: args})
		met := o.Started
		if met == 0 {
			met = end
		}
		if met = min(met, end); met > o.Called {
			events = append(events, event{Name: "wait", Category: "wait", Phase: "X", Process: o.Rank, Thread: k,
				Time: micro(o.Called - start), Duration: micro(met - o.Called)})
		}
	}
	b, err := json.Marshal(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
	if err != nil {
		return []byte("{}") // plain data can be written
	}
	return b
}
