package flight_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/parallel/flight"
)

const second = int64(time.Second)

// call returns rank's call of an all_reduce.
func call(rank int, seq uint64, called, started, ended int64) flight.Operation {
	o := flight.Operation{Rank: rank, Group: "world", GroupID: "1/0", Seq: seq, Name: "all_reduce", Detail: "sum", Count: 1,
		Tensors: []flight.Tensor{{DType: "float32", Shape: []int{4, 3}}}, Bytes: 48, State: flight.Done, Called: called, Started: started, Ended: ended, Uniform: true}
	switch {
	case started == 0:
		o.State = flight.Waiting
	case ended == 0:
		o.State = flight.Running
	}
	return o
}

// part returns the part of a process with one rank.
func part(process, processes int, host string, operations ...flight.Operation) *flight.Part {
	p := &flight.Part{World: "w", Process: process, Host: host, PID: 100 + process, Time: 10 * second, Operations: operations}
	g := flight.Group{Name: "world", ID: "1/0"}
	for i := range processes {
		p.Homes, g.Ranks = append(p.Homes, i), append(g.Ranks, i)
	}
	p.Groups = []flight.Group{g}
	return p
}

func TestRanksThatDisagreeComeFirst(t *testing.T) {
	broadcast := call(2, 2, 3*second, 0, 0)
	broadcast.Name, broadcast.Detail = "broadcast", "root 0"
	r := flight.Merge([]*flight.Part{
		part(1, 4, "a", call(1, 1, second, second+3, second+5), call(1, 2, 3*second, 0, 0), call(1, 3, 4*second, 0, 0)),
		part(0, 4, "a", call(0, 1, second+2, second+3, second+5), call(0, 2, 2*second, 0, 0)),
		part(2, 4, "a", call(2, 1, second+1, second+3, second+5), broadcast),
	}, map[int]error{3: errors.New("no answer within 5s")})
	require.Equal(t, map[int]string{3: "no answer within 5s"}, r.Missing())
	lines := strings.Split(r.Table(), "\n")
	words := func(line string) string { return strings.Join(strings.Fields(line), " ") }
	clock := func(s int64) string { return time.Unix(s, 0).Format("15:04:05.000") }
	require.Equal(t, "! process 3 (rank 3) is missing: no answer within 5s", lines[1])
	for i, want := range []string{
		"! " + clock(4) + " world 3 all_reduce(sum) of float32[4 3] 48 B waiting 6s rank 1",
		"! not called ranks 0, 2, 3",
		"! " + clock(2) + " world 2 all_reduce(sum) of float32[4 3] 48 B waiting 8s ranks 0, 1",
		"! broadcast(root 0) of float32[4 3] 48 B waiting 7s rank 2",
		"! not called rank 3",
		clock(1) + " world 1 all_reduce(sum) of float32[4 3] 48 B done 5ns ranks 0-2",
	} {
		require.Equal(t, want, words(lines[3+i]))
	}
}

func TestRanksOfMissingProcessesAreHeardOf(t *testing.T) {
	heard := call(1, 1, second, second+1, second+2)
	heard.Heard = true
	r := flight.Merge([]*flight.Part{
		part(0, 3, "a", call(0, 1, second, second+1, second+2), heard),
		part(2, 3, "a", call(2, 1, second, second+1, second+2), heard),
	}, nil)
	require.Len(t, r.Operations, 3)
	require.Contains(t, r.Table(), "process 1 (rank 1) is missing: it has written nothing")
	require.Contains(t, r.Table(), "rank 1 (heard by another process)")
	r = flight.Merge([]*flight.Part{part(0, 2, "a", heard), part(1, 2, "a", call(1, 1, second, second+1, second+2))}, nil)
	require.Len(t, r.Operations, 1, "its own process knows better")
	require.False(t, r.Operations[0].Heard)
}

func TestLateness(t *testing.T) {
	var parts []*flight.Part
	const ms = int64(time.Millisecond)
	skew := []int64{0, 0, -7 * second} // the clock of another host
	for rank, late := range []int64{0, 2 * ms, 9 * ms} {
		var operations []flight.Operation
		for seq := range uint64(10) {
			at := second + int64(seq)*20*ms + skew[rank]
			operations = append(operations, call(rank, 1+seq, at+late, at+9*ms, at+10*ms))
		}
		p := part(rank, 3, []string{"a", "a", "b"}[rank], operations...)
		p.Time += skew[rank]
		parts = append(parts, p)
	}
	r := flight.Merge(parts, nil)
	require.Equal(t, []flight.Rank{
		{Rank: 0, Collectives: 10, Wait: float64(9 * ms)},
		{Rank: 1, Collectives: 10, Wait: float64(7 * ms)},
		{Rank: 2, Collectives: 10, Last: 10, Late: float64(7 * ms)},
	}, r.Ranks)
	for _, o := range r.Operations {
		require.Equal(t, int64(o.Seq-1)*20*ms+second+9*ms, o.Started, "clocks are aligned")
	}
	require.Contains(t, r.Table(), "10 (100%)")
}

func TestTrace(t *testing.T) {
	r := flight.Merge([]*flight.Part{part(0, 1, "a", call(0, 1, 2000, 5000, 9000), call(0, 2, 3000, 0, 0))}, nil)
	var trace struct {
		Events []struct {
			Name, Cat, Ph string
			Pid, Tid      int
			Ts, Dur       float64
			Args          map[string]any
		} `json:"traceEvents"`
	}
	require.NoError(t, json.Unmarshal(r.Trace(), &trace))
	slices := map[string][3]float64{}
	names := map[string]bool{}
	for _, e := range trace.Events {
		switch {
		case e.Cat == "collective":
			slices[e.Name] = [3]float64{e.Ts, e.Dur, float64(e.Tid)}
		case e.Ph == "M" && e.Args["name"] != nil:
			names[e.Args["name"].(string)] = true
		}
	}
	require.Equal(t, map[string][3]float64{"all_reduce #1": {0, 7, 0}, "all_reduce #2": {1, float64(10*second-3000) / 1000, 1}}, slices, "they overlap")
	require.Equal(t, map[string]bool{"rank 0 (process 0 on a)": true, "group world": true, "group world (2)": true}, names)
}

func TestFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new [1]")
	_, err := flight.Read(folder)
	require.ErrorIs(t, err, os.ErrNotExist)
	for p := range 2 {
		require.NoError(t, part(p, 3, "a", call(p, 1, second, second+1, second+2)).Write(folder))
	}
	later := part(0, 1, "a", call(0, 1, second, second+1, second+2))
	later.World, later.Time = "x", later.Time+1
	require.NoError(t, later.Write(folder))
	require.NoError(t, os.WriteFile(flight.File(folder, "w", 2), []byte("{"), 0o600))
	records, err := flight.Read(folder)
	require.NoError(t, err)
	require.Len(t, records, 2)
	require.Equal(t, []string{"w", "x"}, []string{records[0].World, records[1].World})
	require.Len(t, records[0].Operations, 2)
	require.Contains(t, records[0].Missing(), 2)

	whole := filepath.Join(folder, "whole.json")
	require.NoError(t, os.WriteFile(whole, records[0].JSON(), 0o600))
	again, err := flight.Read(whole)
	require.NoError(t, err)
	require.Equal(t, records[:1], again)
	_, err = flight.Read(flight.File(folder, "w", 2))
	require.Error(t, err)
	require.NoError(t, os.WriteFile(whole, []byte("[1, 2]"), 0o600))
	_, err = flight.Read(whole)
	require.Error(t, err)
	require.NoError(t, os.WriteFile(whole, []byte("{}"), 0o600))
	_, err = flight.Read(whole)
	require.ErrorContains(t, err, "not a flight record")
}

func TestLongPartsLoseTheirOldOperations(t *testing.T) {
	p := part(0, 1, "a")
	for i := range uint64(1000) {
		p.Operations = append(p.Operations, call(0, 1000-i, int64(1000-i), 0, 0))
	}
	var cut flight.Part
	b := p.Encode(20_000)
	require.LessOrEqual(t, len(b), 20_000)
	require.NoError(t, json.Unmarshal(b, &cut))
	require.NotEmpty(t, cut.Operations)
	require.Equal(t, uint64(1000), cut.Operations[len(cut.Operations)-1].Seq)
	require.Len(t, p.Operations, 1000)
}

func TestRanks(t *testing.T) {
	for want, ranks := range map[string][]int{"no rank": nil, "rank 3": {3}, "ranks 0, 1": {1, 0}, "ranks 0-2, 4, 6, 7": {7, 6, 4, 2, 1, 0}} {
		require.Equal(t, want, flight.Ranks(ranks))
	}
}
