package collective

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/plait-ml/plait/core"
)

// recorded is the number of operations per rank that a recorder keeps.
const recorded = 64

// A Record describes one of a rank's last operations.
type Record struct {
	Seq   uint64
	Op    string // such as "all_reduce(sum) of float32[4 3]"
	Start time.Time
	State string // "waits for ranks", "runs", "done", or the error
}

func (r Record) String() string {
	if r.Seq == 0 {
		return fmt.Sprintf("%s, %s", r.Op, r.State)
	}
	return fmt.Sprintf("#%d %s, %s", r.Seq, r.Op, r.State)
}

// A recorder is a ring buffer of a rank's last operations in a group.
type recorder struct {
	mu      sync.Mutex
	entries [recorded]entry
	next    int
}

type entry struct {
	seq   uint64
	op    string
	start time.Time
	work  *Work
}

func (r *recorder) add(o *Operation, w *Work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[r.next%recorded] = entry{o.Seq, o.String(), time.Now(), w}
	r.next++
}

func (r *recorder) list() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Record
	for i := max(0, r.next-recorded); i < r.next; i++ {
		e := &r.entries[i%recorded]
		list = append(list, Record{e.seq, e.op, e.start, e.work.state()})
	}
	return list
}

// find returns those of the rank's last works that end at e: see [outcome.endsAt].
func (r *recorder) find(e core.Event) (list []*Work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.entries {
		if w := r.entries[i].work; w != nil && w.endsAt(e) {
			list = append(list, w)
		}
	}
	return list
}

// waitsForRanks is the state of an operation at which some ranks have not arrived.
const waitsForRanks = "waits for ranks"

// last describes the rank's last operation.
func (r *recorder) last() string {
	list := r.list()
	if len(list) == 0 {
		return "none"
	}
	return list[len(list)-1].String()
}

func (w *Work) state() string {
	switch {
	case !w.settled.Load():
		return waitsForRanks
	case w.err != nil:
		return w.err.Error()
	case !w.Done():
		return "runs"
	}
	return "done"
}

// history describes err and the last operations of all ranks.
func (m *rendezvous) history(err error) string {
	const shown = 8
	var b strings.Builder
	fmt.Fprintf(&b, "plait: %v\n", err)
	for i, rank := range m.ranks {
		list := m.records[i].list()
		fmt.Fprintf(&b, "  rank %d (%d in the world), the last of %d operations:\n", i, rank, m.records[i].count())
		for _, r := range list[max(0, len(list)-shown):] {
			fmt.Fprintf(&b, "    %s %s\n", r.Start.Format("15:04:05.000"), r)
		}
	}
	return b.String()
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}
