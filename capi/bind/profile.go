package bind

import (
	"encoding/json"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/blas"
)

// ProfileStart begins to collect what all streams run, with the shapes of inputs if they are wanted.
func ProfileStart(shapes bool) Status {
	_, err := core.StartProfile(shapes)
	return failure(err)
}

// ProfileNow returns the nanoseconds since the profile's start; 0 where none is being collected.
func ProfileNow() int64 {
	if p := core.ActiveProfile(); p != nil {
		return int64(p.Now())
	}
	return 0
}

// ProfileStop ends the collection and returns an object that stands for what was run.
func ProfileStop() Object {
	p := core.ActiveProfile()
	if p == nil {
		return failf(core.StateError, "profile", "no profile is being collected")
	}
	return handle.AddObject(p.Stop())
}

// ProfileExecutions returns what was run, as JSON: [{"op", "kernel", "device", "stream", "rank", "start", "end", "shapes"},
// ...] with times in nanoseconds since the profile's start.
func ProfileExecutions(h Object) string {
	list, ok := handle.Object[[]core.Execution](h)
	if !ok {
		return "[]"
	}
	type row struct {
		Op     string  `json:"op"`
		Kernel string  `json:"kernel"`
		Device string  `json:"device"`
		Stream int     `json:"stream"`
		Rank   int     `json:"rank"`
		Start  int64   `json:"start"`
		End    int64   `json:"end"`
		Shapes [][]int `json:"shapes"`
	}
	streams := map[core.Stream]int{}
	rows := make([]row, 0, len(list))
	for _, s := range list {
		n, ok := streams[s.Stream]
		if !ok {
			n = len(streams)
			streams[s.Stream] = n
		}
		r := row{Op: s.Op, Device: s.Stream.Device().String(), Stream: n, Rank: s.Stream.Rank(), Shapes: s.Shapes}
		r.Start, r.End = int64(s.Start), int64(s.End)
		if s.Kernel >= 0 {
			r.Kernel = s.Kernel.String()
		}
		rows = append(rows, r)
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return "[]"
	}
	return string(text)
}

// BlasDescribe returns what computes matrix products on CPU devices, in one line.
//
//plait:waits
func BlasDescribe() string {
	library, err := blas.Info()
	if err != nil {
		return err.Error()
	}
	return library.String()
}
