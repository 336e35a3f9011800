package flight

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// States of an operation.
const (
	Waiting = "waiting" // not all ranks have called it
	Running = "running"
	Done    = "done"
	Failed  = "failed"
)

// An Operation is one rank's call of a collective, a send or a recv. Times are in nanoseconds since 1970, and 0 if not known.
type Operation struct {
	Rank    int      `json:"rank"`     // in the world
	Group   string   `json:"group"`    // its name
	GroupID string   `json:"group_id"` // identifies the group and the sequence that Seq counts in
	Seq     uint64   `json:"seq"`      // counts the operations of the group from 1; 0 for send and recv
	Name    string   `json:"name"`     // such as "all_reduce"
	Detail  string   `json:"detail"`   // such as "sum" or "root 0"
	Tensors []Tensor `json:"tensors"`  // of the call, at most 9
	Count   int      `json:"tensor_count"`
	Purpose string   `json:"purpose,omitempty"` // such as "bucket 1"
	Bytes   int      `json:"bytes"`             // of the rank's inputs or outputs, whichever are more
	State   string   `json:"state"`
	Error   string   `json:"error,omitempty"` // why it has failed
	Called  int64    `json:"called_ns"`
	Started int64    `json:"started_ns"` // all ranks had called it
	// Ended is when the memory was free again. On GPUs it is when that was noticed.
	Ended int64 `json:"ended_ns"`
	// Uniform says that the tensors of all ranks must be alike.
	Uniform bool `json:"uniform,omitempty"`
	// Heard says that another process than the rank's own has told of the call.
	Heard bool `json:"heard,omitempty"`
}

// A Tensor describes a tensor, or a part of one.
type Tensor struct {
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

func (t Tensor) String() string { return fmt.Sprint(t.DType, t.Shape) }

// A Group is a group of ranks.
type Group struct {
	Name  string `json:"name"`
	ID    string `json:"id"`    // the [Operation.GroupID] of its operations
	Ranks []int  `json:"ranks"` // in the world
}

// A Fault is an error that has ended an operation because of another rank.
type Fault struct {
	Time  int64  `json:"time_ns"`
	Error string `json:"error"`
}

// A Part is what one process knows.
type Part struct {
	World      string      `json:"world"` // identifies the world
	Process    int         `json:"process"`
	Host       string      `json:"host"`
	PID        int         `json:"pid"`
	Time       int64       `json:"time_ns"`
	Homes      []int       `json:"homes"` // process of each rank
	Groups     []Group     `json:"groups"`
	Operations []Operation `json:"operations"`
	Faults     []Fault     `json:"faults,omitempty"`
}

// A Process is a process of a world.
type Process struct {
	Process int     `json:"process"`
	Host    string  `json:"host,omitempty"`
	PID     int     `json:"pid,omitempty"`
	Ranks   []int   `json:"ranks"`
	Missing string  `json:"missing,omitempty"` // why its part is missing; empty if it is there
	Faults  []Fault `json:"faults,omitempty"`
}

// A Record joins the parts of a world.
type Record struct {
	World      string      `json:"world"`
	Time       int64       `json:"time_ns"` // of the latest part
	Processes  []Process   `json:"processes"`
	Groups     []Group     `json:"groups"`
	Operations []Operation `json:"operations"` // in the order of the calls
	Ranks      []Rank      `json:"ranks"`
}

// Merge joins the parts of a world. missing says why the parts of some processes are not there. Of their ranks the record has what other
// processes have heard.
func Merge(parts []*Part, missing map[int]error) *Record {
	parts = slices.Clone(parts)
	slices.SortFunc(parts, func(a, b *Part) int { return cmp.Compare(a.Process, b.Process) })
	parts = slices.CompactFunc(parts, func(a, b *Part) bool { return a.Process == b.Process })
	r := &Record{Processes: []Process{}, Groups: []Group{}, Operations: []Operation{}, Ranks: []Rank{}}
	if len(parts) == 0 {
		return r
	}
	r.World = parts[0].World
	r.processes(parts, missing)
	groups := map[string]bool{}
	shift := shifts(parts)
	for i, p := range parts {
		r.Time = max(r.Time, p.Time+shift[i])
		for _, g := range p.Groups {
			if !groups[g.ID] {
				groups[g.ID] = true
				r.Groups = append(r.Groups, g)
			}
		}
	}
	for i, p := range parts {
		for _, o := range p.Operations {
			if !o.Heard || r.tells(parts, i, o) {
				o.shift(shift[i])
				r.Operations = append(r.Operations, o)
			}
		}
	}
	slices.SortStableFunc(r.Operations, func(a, b Operation) int { return cmp.Compare(a.Called, b.Called) })
	r.Ranks = r.lateness()
	return r
}

// processes lists the processes of all ranks.
func (r *Record) processes(parts []*Part, missing map[int]error) {
	n := 0
	for _, home := range parts[0].Homes {
		n = max(n, min(home+1, len(parts[0].Homes))) // every process has a rank
	}
	for i := range n {
		p := Process{Process: i, Ranks: []int{}, Missing: "it has written nothing"}
		if missing[i] != nil {
			p.Missing = missing[i].Error()
		}
		for rank, home := range parts[0].Homes {
			if home == i {
				p.Ranks = append(p.Ranks, rank)
			}
		}
		r.Processes = append(r.Processes, p)
	}
	for _, p := range parts {
		if p.Process < n {
			own := &r.Processes[p.Process]
			own.Host, own.PID, own.Missing, own.Faults = p.Host, p.PID, "", p.Faults
		}
	}
}

// tells reports whether part i is the one that tells of a rank whose own process does not: the first that has heard of its group.
func (r *Record) tells(parts []*Part, i int, o Operation) bool {
	home := -1
	if o.Rank >= 0 && o.Rank < len(parts[i].Homes) {
		home = parts[i].Homes[o.Rank]
	}
	if home < 0 || home >= len(r.Processes) || r.Processes[home].Missing == "" {
		return false
	}
	for _, p := range parts[:i] {
		if slices.ContainsFunc(p.Operations, func(x Operation) bool { return x.Heard && x.Rank == o.Rank && x.GroupID == o.GroupID }) {
			return false
		}
	}
	return true
}

// Missing returns why parts of processes are not in the record, by process.
func (r *Record) Missing() map[int]string {
	missing := map[int]string{}
	for _, p := range r.Processes {
		if p.Missing != "" {
			missing[p.Process] = p.Missing
		}
	}
	return missing
}

// JSON returns the record as JSON.
func (r *Record) JSON() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		return []byte("{}") // plain data can be written
	}
	return b
}

// String returns [Record.Table].
func (r *Record) String() string { return r.Table() }

// Call describes the call, such as "all_reduce(sum) of float32[4 3] for bucket 1".
func (o *Operation) Call() string {
	var b strings.Builder
	b.WriteString(o.Name)
	if o.Detail != "" {
		fmt.Fprintf(&b, "(%s)", o.Detail)
	}
	of := " of "
	for i, t := range o.Tensors {
		if i == 8 && o.Count > 9 {
			break
		}
		b.WriteString(of)
		b.WriteString(t.String())
		of = ", "
	}
	if o.Count > 9 {
		fmt.Fprintf(&b, ", ... %d in all", o.Count)
	}
	if o.Purpose != "" {
		if o.Count == 0 {
			b.WriteString(" of bytes")
		}
		b.WriteString(" for " + o.Purpose)
	}
	return b.String()
}

// shift moves the known times.
func (o *Operation) shift(by int64) {
	for _, t := range []*int64{&o.Called, &o.Started, &o.Ended} {
		if *t != 0 {
			*t += by
		}
	}
}

// age is the time from the call to its end, or to now.
func (o *Operation) age(now int64) time.Duration {
	if o.Ended != 0 {
		now = o.Ended
	}
	return time.Duration(max(now-o.Called, 0))
}
