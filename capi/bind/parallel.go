package bind

import (
	"encoding/json"
	"strings"

	"github.com/plait-ml/plait/capi/handle"
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel"
)

// ParallelAxes writes which axis of a mesh is for the stages of a pipeline, for copies, for shards and for divided layers, in this order: -1 for
// none, or one of a single rank. given are the names that a program gives them, separated by line breaks; an empty one is the way's own.
func ParallelAxes(mesh Object, given string, out IntsOut) (status Status) {
	defer protect("parallelize", &status)
	m := meshOf(mesh)
	names := strings.SplitN(given+"\n\n\n", "\n", 5)
	axes, err := parallel.AxesOf(m, parallel.Axes{PP: names[0], DP: names[1], FSDP: names[2], TP: names[3]})
	if err != nil {
		return failure(err)
	}
	for i, name := range []string{axes.PP, axes.DP, axes.FSDP, axes.TP} {
		at := -1
		if name != "" {
			if at, err = m.Axis(name); err != nil {
				return failure(err)
			}
		}
		handle.Slice[int64](out, 4)[i] = int64(at)
	}
	return 0
}

// ParallelAgree fails on every rank of a mesh unless all have the same facts, a list of pairs of texts in JSON: what is told, and what is told of
// it. Every rank calls it.
//
//plait:waits
func ParallelAgree(mesh Object, name, facts string) (status Status) {
	defer protect(name, &status)
	var pairs [][2]string
	if err := json.Unmarshal([]byte(facts), &pairs); err != nil {
		return failf(core.ValueError, name, "got %v", err)
	}
	var list []parallel.Fact
	for _, p := range pairs {
		list = append(list, parallel.Fact{What: p[0], Said: p[1]})
	}
	return failure(parallel.Agree(meshOf(mesh), name, list, nil))
}

// ParallelBroadcast gives all ranks of a mesh the values that its first rank has of n tensors. Every rank calls it.
//
//plait:waits
func ParallelBroadcast(mesh Object, list Tensors, n int64) (status Status) {
	defer protect("parallelize", &status)
	defer using(tensors(list, n)...)()
	return failure(parallel.Broadcast(meshOf(mesh), tensors(list, n)))
}

// ParallelAverage replaces the gradients of n parameters by their averages over the ranks of a group. A gradient that some ranks lack counts as
// zero there, and one that all lack stays absent. problem is why the rank's pass has failed, or empty: if one has, every rank gets an error. Every
// rank calls it.
//
//plait:waits
func ParallelAverage(of Object, params Tensors, n int64, problem string) (status Status) {
	defer protect("parallelize", &status)
	defer using(tensors(params, n)...)()
	var err error
	if problem != "" {
		err = core.Errorf(core.DistributedError, "parallelize", "%s", problem)
	}
	return failure(parallel.AverageGradients(group(of), tensors(params, n), err))
}
